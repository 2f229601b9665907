"""Show the journal of a function: one entry for each operation, with what the code received."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hark.model import json
from hark.model.error_codec import decode_error
from hark.model.names import awakeable_id, from_micros
from hark.model.page import Page
from hark.model.values import Entry
from hark.programs.functions.function_journal import MARKERS, PATCH
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import ShownLine
from hark.views import instance_views

_MOST = 4  # lines that a number usually has: the creation and the answer of an awakeable, and two before them


async def entries(store: Store, target: str, limit: int, after: int) -> Page[Entry]:
    """The entries with a number higher than `after`, in the order in which the code asked for them."""
    id = await instance_views.find(store, target)
    size = _MOST * (limit + 1)
    rows = await store.read(reads.lines_after, id=id, after=after, size=size)
    while len(rows) == size and rows[0].entry == rows[-1].entry:  # many patches, or retries, at one number
        size *= _MOST
        rows = await store.read(reads.lines_after, id=id, after=after, size=size)
    cut = rows[-1].entry if len(rows) == size else None  # the last number may have more lines
    found: list[Entry] = []
    last = after
    for number, lines in groupby(rows, key=lambda row: row.entry):
        shown = list(_shown(id, number, list(lines)))
        if number == cut or (found and len(found) + len(shown) > limit):
            return Page(found, str(last))
        found += shown
        last = number
    return Page(found, None)


def _shown(id: str, number: int, lines: Sequence[ShownLine]) -> Iterator[Entry]:
    """The entries of one number: the patches that were asked for before the operation, and the operation."""
    for line in lines:
        if line.kind == PATCH:
            yield Entry(number, PATCH, line.name, value=True, error=None, at=from_micros(line.at))
    operation = [line for line in lines if line.kind not in MARKERS]
    if not operation:
        return
    first, last = operation[0], operation[-1]
    value, name = None if last.value is None else json.load(last.value), first.name
    if first.kind == "awakeable":
        name = awakeable_id(id, number)
        value = value if last is not first else None  # its creation has the secret of its link
    elif first.kind == "wait" and value is not None:
        name, value = value["name"], value["payload"]
    error = None if last.error is None else str(decode_error(last.error))
    yield Entry(number, first.kind, name, value, error, from_micros(last.at), last.attempts)
