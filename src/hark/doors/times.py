"""Parse points in time as people and clients write them."""

from __future__ import annotations

from datetime import datetime

from hark.model.errors import InvalidInput


def parse_time(text: str | None, what: str) -> datetime | None:
    """Parse an ISO 8601 time with a time zone; None stays None.

    Raises:
        InvalidInput: It is not such a time.
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{what}={text!r} is not a time. Write it like 2026-01-31T09:00:00Z.") from None
    if at.utcoffset() is None:
        raise InvalidInput(f"{what}={text!r} has no time zone. Write it like 2026-01-31T09:00:00Z.")
    return at
