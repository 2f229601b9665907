"""The input of bulk instances: what is to be done, to which instances, and what has been done so far."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hark.views.listing import Filters, Place


class Change(Struct, frozen=True, omit_defaults=True):
    """A migration, as its caller asked for it."""

    to_version: int
    state: str | None = None  # the function from the old state to the new one, as `module:name`
    steps: dict[str, str] = {}  # of machines: the new name of each step that is not called the same
    elements: dict[str, str] = {}  # of processes: the id of the new element for each that has another id


class Selection(Struct, frozen=True):
    """The instances that the action is carried out on: these, or those that match the filters when they are read."""

    ids: tuple[str, ...] | None = None
    filters: Filters | None = None


class Tally(Struct):
    """The progress of a bulk instance."""

    place: Place | None = None  # behind which the next page begins
    ended: bool = False  # all pages have been read
    done: int = 0
    skipped: int = 0
    failed: int = 0
    busy: list[str] = []  # to try again
    tries: int = 0
    problems: dict[str, str] = {}


class Asked(Struct, frozen=True):
    """The input of a bulk instance."""

    selection: Selection
    migrate: Change
    by: str | None = None
    tally: Tally = msgspec.field(default_factory=Tally)
