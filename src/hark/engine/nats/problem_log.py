"""ProblemLog: logs a problem of NATS once, again after a minute if it lasts, and once it is solved."""

from __future__ import annotations

import time
from typing import Final

from hark.engine.nats.counters import NatsCounters
from hark.model.log import get_logger

_log = get_logger()
_SAY_AGAIN: Final = 60.0  # seconds until the same problem is logged again
_MOST_KINDS: Final = 100  # problems that are remembered


class ProblemLog:
    """The problems of one process. Used on the NATS thread."""

    def __init__(self, counters: NatsCounters) -> None:
        self._counters = counters
        self._logged: dict[str, float] = {}  # when, by kind
        self._lasting: set[str] = set()
        self._is_news = True  # that it works would be
        self._last = ""

    def report(self, problem: str, *, kind: str | None = None, lasting: bool = False) -> None:
        """Log a problem, unless one of the same kind was logged a short time ago.

        A lasting one is not forgotten when a connection is made: a missing permission is there on the next one too, and
        would be logged with each of them.
        """
        self._counters.last_error = self._last = problem
        kind = problem if kind is None else kind
        now = time.monotonic()
        if now - self._logged.get(kind, -_SAY_AGAIN) < _SAY_AGAIN:
            return
        if len(self._logged) >= _MOST_KINDS:
            self._logged.clear()
            self._lasting.clear()
        self._logged[kind] = now
        if lasting:
            self._lasting.add(kind)
        self._is_news = True
        _log.warning("%s", problem)

    def solve(self, text: str) -> None:
        """Log that NATS can be used, if that was not so before."""
        self._logged = {kind: at for kind, at in self._logged.items() if kind in self._lasting}
        if self._counters.last_error == self._last:
            self._counters.last_error = None
        if self._is_news:
            self._is_news = False
            _log.info("%s", text)
