"""Identify the processes of one machine, and tell for certain that one of them is gone (M5).

A process id alone proves nothing: it is reused, containers count from 1 each, and machines share names. So a process is
the name and the boot of its machine, its namespaces, its id and the time of its start. Only processes of the same boot
and namespaces can see each other: of any other, nothing is known here. Needs the /proc of Linux; elsewhere nothing is
ever known. (Clones of a running virtual machine share a boot: their names tell them apart, if they have different ones.
If not, the fence still drops what a worker commits that was taken for dead.)
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_STATE, _THREADS, _START = 0, 17, 19  # of /proc/PID/stat, counted behind the name


class _Stat(NamedTuple):
    start: str
    """The start of the process, in ticks since the boot."""
    is_dead: bool
    """True if it has ended, and its parent has not asked for its exit code yet."""


def this_process() -> str:
    """Identify this process; "" if that is not possible here."""
    return _identify(os.getpid())  # computed again after a fork


def is_gone(process: str) -> bool:
    """Return True if this process, as `this_process` named it there, is known to have ended. False proves nothing."""
    pid, _, start = process.rpartition("/")[2].partition("@")
    if not is_near(process) or not pid.isdecimal() or not start:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, and belongs to another user
    stat = _read_stat(pid)
    return stat is not None and (stat.is_dead or stat.start != start)


def is_near(process: str) -> bool:
    """Return True if `is_gone` can notice the end of this process: it runs on this machine, in the same namespaces."""
    mine = this_process()
    return bool(mine) and process != mine and process.rpartition("/")[0] == mine.rpartition("/")[0]


@cache
def _identify(pid: int) -> str:
    try:
        if os.readlink(_PROC / "self") != str(pid):
            return ""  # the /proc of another namespace
        place = [socket.gethostname(), (_PROC / "sys/kernel/random/boot_id").read_text().strip()]
        # A process id counts in one namespace, and the time of a start is shown in the time namespace of the reader.
        place.append(os.readlink(_PROC / "self/ns/pid"))
        if (_PROC / "self/ns/time").is_symlink():
            place.append(os.readlink(_PROC / "self/ns/time"))
    except OSError:
        return ""
    stat = _read_stat(str(pid))
    return f"{'/'.join(place)}/{pid}@{stat.start}" if stat is not None and all(place) else ""


def _read_stat(pid: str) -> _Stat | None:
    """Read the state of a process; None if it cannot be seen, for example with `hidepid`."""
    try:
        text = (_PROC / pid / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name stands before it, and may have spaces and parentheses
    if len(fields) <= _START:
        return None
    # The first thread of a process may have ended while others run on.
    return _Stat(fields[_START], fields[_STATE] in "ZXx" and fields[_THREADS] in ("0", "1"))
