"""The side of a process that a supervisor (supervisor.py) has started: its number, and its end with the supervisor.

The number comes in an environment variable and not in an option: the command line stays the one that was typed.
The variable is removed before any code of the app runs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

_VARIABLE: Final = "HARK_SUPERVISED"
READY: Final = b"r"
_STOP_MARGIN: Final = 30.0  # seconds: open requests have ten to finish, and so has the database
_MAX_GRACE: Final = 7 * 86400.0  # seconds; `time.sleep` refuses an infinite number


@dataclass(frozen=True)
class ProcessPlace:
    """The number of one of the processes, and the descriptors that it inherits from the supervisor."""

    number: int
    """From 1."""
    channel: int
    listener: int | None

    def environment(self) -> dict[str, str]:
        """The environment of the process that takes this place."""
        return {**os.environ, _VARIABLE: json.dumps(asdict(self))}


def stop_time(grace: float) -> float:
    """Seconds after which a process with this grace period has stopped, unless something blocks it."""
    return min(max(0.0, grace), _MAX_GRACE) + _STOP_MARGIN


class Supervised:
    """The supervisor, as one of its processes sees it.

    The channel is a socket of which only the supervisor holds the other end. Its end means that the supervisor has
    ended, however it did: then this process stops as it does on SIGTERM.
    """

    def __init__(self, place: ProcessPlace, grace: float) -> None:
        self.number = place.number
        self.listener = place.listener
        self._stop_time = stop_time(grace)
        self._channel = socket.socket(fileno=place.channel)
        self._channel.set_inheritable(False)  # otherwise a command of a task would look like this process
        threading.Thread(target=self._stop_with_the_supervisor, name="hark-supervised", daemon=True).start()

    def report_ready(self) -> None:
        """Tell the supervisor that this process could start: from now on its end is a crash, not a wrong option.

        To be called before the first step runs, which may end the process.
        """
        with suppress(OSError):  # the supervisor has ended
            self._channel.sendall(READY)

    def _stop_with_the_supervisor(self) -> None:
        with suppress(OSError):
            while self._channel.recv(1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._stop_time)
        os._exit(1)  # a step blocks the event loop; what it was doing runs again when the lease has ended


def join_supervisor(grace: float) -> Supervised | None:
    """The supervisor that has started this process; None if none has."""
    given = os.environ.pop(_VARIABLE, None)
    return None if given is None else Supervised(ProcessPlace(**json.loads(given)), grace)
