"""Trigger: a schedule or a start event, which starts instances of a definition.

A schedule and a timer start one at each tick, a broadcast one each time it is sent, a message one if no live instance
takes it. `Hark.schedule` makes schedules; a deployed definition brings its own (`Deploy.starts`).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from hark.model.cron import Timing, check_timing
from hark.model.errors import InvalidInput

TriggerKind = Literal["schedule", "timer", "broadcast", "message"]
Overlap = Literal["skip", "allow", "queue"]

MAX_CATCH_UP = 1000


class Trigger(Struct, frozen=True, kw_only=True):
    """A trigger of a definition.

    `name` is that of the schedule, the broadcast or the message; a timer has none. `state` is the first state of the
    instances, as `StartBuilder` builds it from an input; without one, an instance that a broadcast or a message starts
    gets its payload. `element` is the step that the instance begins with; "" is the definition's first.
    """

    kind: TriggerKind
    name: str = ""
    element: str = ""
    state: str | None = None
    correlation_key: str | None = None
    timing: Timing = Timing()
    at: int | None = None  # the first tick, µs since 1970; None: the first one of `timing`
    remaining: int | None = None  # the number of ticks in all; None: no limit
    overlap: Overlap = "skip"
    catch_up: int = 1

    def id(self, definition: str) -> str:
        """The key of its row in `triggers`. Schedules are one namespace; of the others each element has its own."""
        return f"schedule:{self.name}" if self.kind == "schedule" else f"{self.kind}:{definition}:{self.element}"


def new_schedule(
    name: str,
    state: str,
    *,
    cron: Any = None,
    every: Any = None,
    timezone: Any = "UTC",
    overlap: Any = "skip",
    catch_up: Any = 1,
    correlation_key: str | None = None,
) -> Trigger:
    """A schedule with these options, checked.

    Raises:
        InvalidInput: An option is malformed.
    """
    if overlap not in ("skip", "allow", "queue"):
        raise InvalidInput(f"overlap={overlap!r}: give 'skip', 'allow' or 'queue'.")
    if type(catch_up) is not int or not 0 <= catch_up <= MAX_CATCH_UP:
        raise InvalidInput(f"catch_up={catch_up!r}: give a whole number from 0 to {MAX_CATCH_UP}.")
    return Trigger(
        kind="schedule", name=name, state=state, timing=check_timing(cron, every, timezone), overlap=overlap,
        catch_up=catch_up, correlation_key=correlation_key,
    )  # fmt: skip
