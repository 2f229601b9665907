"""Bound families: the live descendants of one instance. A process that calls itself three times would fill the store.

The bound costs a start nothing. This process counts how many children were started by instances that are children
themselves; only after half as many as a family may have does it look at the families that start some then, and again
after half of what the largest of them may still grow. So a scan of a family is paid by as many starts as it has rows,
down to a hundredth of the bound. A family that was full stays so until nearly all of it has ended, and is looked at
once a second. Each process counts for itself: with
several, a family grows past its bound by that hundredth for each. What an instance starts that has no parent is not
bounded: it is one step of one program, and maps and multi-instances have limits of their own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hark.kernel.requests import Request, SignalWithStart, StartInstances
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_LOOK_AGAIN = 1_000_000  # µs after which a full family is counted again
_FORGET = 3_600_000_000  # µs
# A full family has room again when it has ended but for so many. With room as soon as some have failed, those that are
# left would start as many again, and the store would fill with those that have failed.
_FEW, _FEW_SHARE = 10, 1_000
_SHARE = 100  # a family grows by this part of its bound before it is counted again


class Families:
    """The knowledge of this process about large families. A turn that is rolled back may leave its counts too high,
    which costs a look.

    Attributes:
        started: Children of children that were started since families were last looked at.
        look_after: How many may be started until then; None: half of the bound.
        full: The families that have no room, by their root, and when to count them again.
    """

    __slots__ = ("full", "look_after", "started")

    def __init__(self) -> None:
        self.started = 0
        self.look_after: int | None = None
        self.full: dict[str, int] = {}


async def crowded(
    turn: Turn, starts: list[tuple[NewInstance, StartInstances | SignalWithStart]]
) -> dict[Request, InvalidInput]:
    """The errors of starts in families that have as many live instances as they may, by their request."""
    families, most = turn.catalog.families, turn.rules.max_family
    askers: dict[Request, str] = {}
    counts: Counter[Request] = Counter()
    for _, asker in starts:
        if isinstance(asker, StartInstances) and asker.parent_wait is not None and (sender := asker.sender) is not None:
            parent = sender.claim
            if parent.parent_id is not None:
                askers[asker] = parent.id
                counts[asker] += 1
    if not askers:
        return {}
    families.started += counts.total()
    looks = families.started > (most // 2 if families.look_after is None else families.look_after)
    if not looks and not families.full:
        return {}
    roots = dict(await turn.tx.fetch(sql.roots_of, ids=sorted(set(askers.values()))))
    wanted: Counter[str] = Counter()
    for request, id in askers.items():
        wanted[roots.get(id, id)] += counts[request]
    counted = [root for root in wanted if looks or families.full.get(root, turn.now) < turn.now]
    await _count(turn, families, sorted(counted), wanted, looks=looks)
    return {
        request: _full(root, most) for request, id in askers.items() if (root := roots.get(id, id)) in families.full
    }


async def _count(turn: Turn, families: Families, roots: list[str], wanted: Counter[str], *, looks: bool) -> None:
    """Count these families, and remember those that have no room for the starts of this turn."""
    most = turn.rules.max_family
    if not roots:
        return
    limit = (most + 1) * len(roots)
    sizes = dict.fromkeys(roots, 0) | dict(await turn.tx.fetch(sql.family_sizes, ids=roots, most=limit))
    for root, size in sizes.items():
        was_full = families.full.pop(root, None) is not None
        if size + wanted[root] > most or (was_full and size > _FEW + most // _FEW_SHARE):
            families.full[root] = turn.now + _LOOK_AGAIN
    if looks:
        largest = max((size for root, size in sizes.items() if root not in families.full), default=0)
        families.started = 0
        families.look_after = max(most // _SHARE, (most - largest) // 2)
    for root in [root for root, again in families.full.items() if again < turn.now - _FORGET]:
        del families.full[root]


def _full(root: str, most: int) -> InvalidInput:
    return InvalidInput(
        f"The family of instance {root} has as many live instances as it may: {most}. It probably "
        f"starts itself without an end: correct that, and cancel {root}. If it needs more, open the app with a larger "
        "max_family."
    )
