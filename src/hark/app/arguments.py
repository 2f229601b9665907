"""Check the arguments of the verbs, before anything is asked of the clerk.

Names, ids, durations and times are checked in model/names.py, JSON in model/json.py. Each check returns the value in
the form the layers below use, or raises `InvalidInput` with what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

from hark.engine.peers.retention import Retention
from hark.model.errors import InvalidInput
from hark.model.names import SECOND, check_name, micros, moment
from hark.model.outcomes import Duration
from hark.model.values import Kind, Rate, Status
from hark.views.listing import Filters

MAX_PAGE = 10_000
MAX_TAGS = 20
MIN_EVENT_RETENTION = 86_400


def target_of(target: Any) -> str:
    """The id or key of a target: the text itself, or the `id` of a handle or instance."""
    return check_name(getattr(target, "id", target), "target")


def optional_name(name: str | None, what: str) -> str | None:
    """A name that may be left out."""
    return None if name is None else check_name(name, what)


def optional_target(target: Any) -> str | None:
    """A target that may be left out."""
    return None if target is None else target_of(target)


def check_word(word: Any, what: str, words: Any) -> None:
    """Refuse a filter that is not one of the words of this `Literal`."""
    if word is not None and word not in get_args(words):
        raise InvalidInput(f"{what}={word!r}: give one of {', '.join(get_args(words))}.")


def check_count(number: int, what: str, least: int = 1) -> int:
    """A whole number from `least`."""
    if type(number) is not int or number < least:
        raise InvalidInput(f"{what}={number!r}: give a whole number from {least}.")
    return number


def check_limit(limit: int) -> int:
    """The size of a page."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit={limit!r}: give a whole number from 1 to {MAX_PAGE}.")
    return limit


def check_tags(tags: Any) -> dict[str, str] | None:
    """The tags of an instance, or those to find: a dict of text to text."""
    if not tags and (tags is None or isinstance(tags, Mapping)):
        return None
    if not isinstance(tags, Mapping):
        raise InvalidInput(f'tags={tags!r}: give a dict of text to text, for example {{"tenant": "a"}}.')
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{len(tags)} tags are too many: give at most {MAX_TAGS}, and keep the rest in the input.")
    return {check_name(name, "name of a tag"): check_name(tags[name], f"tag {name!r}") for name in tags}


def check_filters(
    *,
    status: str | None,
    definition: str | None,
    kind: str | None,
    tags: Mapping[str, str] | None,
    key_prefix: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> Filters:
    """The filters of `list`."""
    optional_name(definition, "definition")
    optional_name(key_prefix, "key_prefix")
    check_word(status, "status", Status)
    check_word(kind, "kind", Kind)
    times = {"created_after": created_after, "created_before": created_before}
    given: dict[str, Any] = {name: moment(at, name) for name, at in times.items() if at is not None}
    return Filters(status, definition, kind, check_tags(tags), key_prefix, **given)


def check_cursor(cursor: Any) -> tuple[int, int]:
    """The position of an event in the history of all instances: its cursor, or the `next` of a page."""
    if isinstance(cursor, str):
        return cursor_of(cursor)
    if not isinstance(cursor, tuple) or [type(n) is int and 0 <= n < 2**63 for n in cursor] != [True, True]:
        raise InvalidInput(
            f"{cursor!r} is not a position in the history. Give the `.cursor` of an event, or (0, 0) for the beginning."
        )
    return cursor


def cursor_of(text: str) -> tuple[int, int]:
    """Parse the position of an event, as the `next` of a page has it."""
    tx, _, seq = text.partition(".")
    return cursor_number(tx), cursor_number(seq)


def cursor_of_wait(text: str) -> tuple[int, str]:
    """Parse the position of a wait: when it began, and its id."""
    since, _, id = text.partition("-") if isinstance(text, str) else ("", "", "")
    return cursor_number(since), optional_name(id or None, "after") or ""


def cursor_number(text: str) -> int:
    """Parse a number of a cursor."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("Invalid cursor in `after`: use the `next` of an earlier page, or leave it out to begin.")
    return int(text)


def seconds(duration: Duration, what: str, *, zero: bool = False) -> float:
    """A duration as seconds; `zero` says whether it may be 0."""
    return micros(duration, what, zero=zero) / 1_000_000


def optional_seconds(duration: Duration | None, what: str) -> float | None:
    """The time to wait as seconds, 0 included; None waits forever."""
    return None if duration is None else seconds(duration, what, zero=True)


def check_retention(finished: Duration, failed: Duration, events: Duration | None) -> Retention:
    """The options of retention. Failed instances are never removed before others: the longer time counts."""
    kept = seconds(finished, "retention")
    return Retention(kept, max(kept, seconds(failed, "retention_failed")), _check_event_retention(events))


def _check_event_retention(duration: Duration | None) -> float | None:
    """The option `event_retention`, as seconds. If a connection is cut during COMMIT, the events of the turn prove
    that it committed: if retention had removed them, the turn would run twice."""
    if duration is None:
        return None
    return micros(duration, "event_retention", zero=False, least=MIN_EVENT_RETENTION * SECOND) / SECOND


def check_rates(given: Any) -> dict[str, Rate]:
    """The option `rate_limits`: each limit a `Rate`, or a dict of its parameters."""
    if not isinstance(given, dict):
        raise InvalidInput(f"rate_limits={given!r}: give a dict of names and Rate(allowed=…, period=…).")
    rates = {}
    for name, rate in given.items():
        try:
            rates[name] = rate if isinstance(rate, Rate) else Rate(**rate)
        except TypeError as error:
            raise InvalidInput(f"rate_limits[{name!r}]: {error}. Give Rate(allowed=…, period=…), or a dict.") from error
    return rates
