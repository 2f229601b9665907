"""Write durations as people read them."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """A duration in its largest unit, rounded: `7 d` a moment before a week is over, `1 h` after 59 min 40 s."""
    for (size, unit), (smaller, _) in zip(_UNITS, [*_UNITS[1:], (1, "")], strict=True):
        if round(seconds / smaller) * smaller >= size:
            return f"{round(seconds / size)} {unit}"
    return "0 s"


def short_duration(seconds: float) -> str:
    """A duration as in `duration`, but with tenths of seconds below ten: `0.5 s`."""
    return f"{max(0.0, round(seconds, 1)):g} s" if seconds < 10 else duration(seconds)
