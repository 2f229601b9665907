"""Find time zones by their IANA names, and the instant of a local time, also where clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hark.model.errors import InvalidInput

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)
_MAX_NAME = 255  # characters
_NOT_ZONES = ("localtime", "posixrules", "right/")  # another one on each machine, or with leap seconds


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a local time: the first one if it occurs twice, the end of the gap if it is skipped."""
    at = local.replace(tzinfo=zone).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == local:
        return at
    # In a gap `at` uses the offset from before it and lies after the change, `low` uses that from after it and lies
    # before the change. The change is on a whole second.
    low, high = local.replace(tzinfo=zone, fold=1).astimezone(UTC), at
    offset = high.astimezone(zone).utcoffset()
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


def time_zone(name: Any) -> ZoneInfo:
    """The time zone of an IANA name. Raises InvalidInput if this process has none of that name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if isinstance(name, str) and 0 < len(name) <= _MAX_NAME and not name.startswith(_NOT_ZONES):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of zones
        pass
    raise InvalidInput(f"timezone={repr(name)[:60]} is not a time zone. Give an IANA name such as 'Europe/Berlin'.")
