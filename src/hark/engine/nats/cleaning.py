"""Remove values from the bucket after they were read: when their time is over, or earlier if room is short.

Values that are not acknowledged are never removed: they are above the floor of the reader's consumer. The first value
that is young enough is found by halving, by the times that the server has given them, so it does not matter when this
process has begun to read.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from hark.engine.nats.bucket import SignalBucket, Stream
from hark.engine.nats.connection import ApiError, ConnectionLost, JetStreamOff
from hark.engine.nats.election import Term
from hark.model.log import get_logger
from hark.model.reasons import reason

_log = get_logger()
_PAUSE: Final = 10.0  # seconds between two looks
_ROOM: Final = 64 << 20  # bytes of the stream: above it, all that was read is removed


async def clean_for_ever(term: Term, keep: int) -> None:
    """Remove what was read more than `keep` µs ago, again and again, until this is cancelled."""
    cleaner = Cleaner(term, keep)
    pause = min(_PAUSE, max(0.05, keep / 1_000_000))
    logged = False
    while True:
        await asyncio.sleep(pause)
        try:
            await cleaner.clean()
            logged = False
        except (ConnectionLost, JetStreamOff):
            return  # the reader notices it too
        except Exception as error:  # an ApiError also for a moment when another process has taken over
            if not logged:
                logged = True
                text = "Old values of the NATS bucket %r cannot be removed: %s. It is tried again."
                unexpected = None if isinstance(error, ApiError) else error
                _log.warning(text, term.bucket.name, reason(error), exc_info=unexpected)


class Cleaner:
    """Removes what was read in the term of one reader."""

    def __init__(self, term: Term, keep: int) -> None:
        """`keep` is how long a value that was read stays, µs."""
        self._term = term
        self._keep = keep
        self._may_ask_for_limits = True

    async def clean(self) -> None:
        """Remove what was read and put too long ago; everything that was read if room is short."""
        bucket = self._term.bucket
        stream = await bucket.state()
        floor = await bucket.floor(self._term.consumer)
        if stream is None or floor < stream.first:
            return
        end = floor + 1
        if not await self._is_short_of_room(stream):
            oldest = datetime.now(UTC) - timedelta(microseconds=self._keep)
            end = await _first_after(bucket, stream.first, end, oldest)
        if end > stream.first:
            await bucket.purge_before(end)

    async def _is_short_of_room(self, stream: Stream) -> bool:
        """Return True if puts are refused, or may be soon. The limit of the server itself is not visible to clients."""
        if stream.size > _ROOM or stream.is_half_full:
            return True
        if not self._may_ask_for_limits:
            return False
        limits = await self._term.bucket.limits(stream)
        self._may_ask_for_limits = limits is not None
        return limits is not None and limits.is_almost_reached


async def _first_after(bucket: SignalBucket, low: int, high: int, time: datetime) -> int:
    """The lowest sequence from `low` on whose value was put after this time, or `high`. Times grow with sequences."""
    middle = low  # mostly the first value is young enough
    while low < high:
        found = await bucket.first_from(middle)
        if found is None or _time(found.time) > time:
            high = middle
        else:
            low = found.sequence + 1
        middle = (low + high) // 2
    return min(low, high)


def _time(text: str) -> datetime:
    """A time as JetStream writes it: with up to nine digits of a second, of which Python reads six."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{rest[:6]:<06}").replace(tzinfo=UTC)
