"""The guard: the parent process of one command, which ends the command and all it started when the worker is gone.

It is a script of its own, run by `runner.py` as `python -I -S guard.py FD [SCRATCH]`, and imports few modules of the
standard library. FD is a socket to the worker. The worker sends one line of JSON that says what to run, and after it a
byte whenever its lease was renewed. The end of the stream means "end the command": the worker closes its side, or the
kernel does when the worker is killed. The guard answers with lines of JSON: `{"pid"}` when the command runs, then
`{"exit", "lease_lost"}` when it and its process group have ended, or `{"error"}` when it could not be started. At its
end it removes the directory SCRATCH.

How a command ends:

- By itself: what is left of its process group gets SIGTERM and, after the grace period, SIGKILL. A process that has
  left the group on purpose (a daemon) is not touched.
- Because the worker ends it, is dead, or has not renewed its lease in time (it may be frozen, or cut off from the
  database, and another worker may begin the same task now): everything that descends from the guard gets the same. On
  Linux the guard is a subreaper, so it finds processes that have left the group too. Elsewhere it is the process group.

On Linux the command also gets SIGKILL when the guard itself is killed, and the guard notices the death of the worker
even if a forked process still holds the worker's side of the socket. Without prctl the guard does the second by asking
for its parent every second.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK = 0.02  # seconds between two looks at processes that are ending
_PARENT_CHECK = 1.0  # seconds, where no signal tells of the parent's death
_GIVE_UP = 10.0  # seconds after SIGKILL: a process that the kernel cannot end is reported as it is

Prctl = Callable[[int, int], Any]


def find_prctl() -> Prctl | None:
    """The system call prctl, or None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, 0)  # also proves that it can be called
    except (ImportError, OSError, AttributeError):
        return None
    return lambda option, value: prctl(option, value, 0, 0, 0)


class CommandGuard:
    def __init__(self, channel: int, order: dict[str, Any], prctl: Prctl | None) -> None:
        self._channel = channel
        self._worker: int = order["worker"]
        self._grace: float = order["grace"]
        self._order = order
        self._prctl = prctl
        self._lease: float | None = order["lease"]  # seconds; None: the worker needs none
        self._lease_ends: float | None = None if self._lease is None else time.monotonic() + order["lease_left"]
        self._lease_lost = False
        self._pid = 0
        self._exit: int | None = None  # as waitstatus_to_exitcode gives it; None while the command runs
        self._whole = False  # end everything that descends from the guard, not only the group
        self._wakeup = self._wake_on_signals()

    def run(self) -> None:
        """Start the command, and return when it has ended and nothing of it is left."""
        if self._prctl is not None:
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        if os.getppid() != self._worker:
            return
        error = self._start()
        if error is not None:
            self._say({"error": error})
            return
        self._say({"pid": self._pid})
        self._wait_for_an_end()
        self._end_what_is_left()
        self._say({"exit": self._exit, "lease_lost": self._lease_lost})

    # -- starting ---------------------------------------------------------------------------------

    def _start(self) -> str | None:
        """Fork and execute. Returns the reason if the program cannot be executed."""
        guard = os.getpid()
        failed, report = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._become_the_command(guard)
            except OSError as error:
                os.write(report, f"{error.strerror}: ".encode() + os.fsencode(error.filename or ""))
            except ValueError as error:  # a null byte
                os.write(report, str(error).encode())
            finally:
                os._exit(127)
        os.close(report)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # only the command may hold them open
            os.dup2(nothing, stream)
        reason = b""
        while part := os.read(failed, 4096):
            reason += part
        os.close(failed)
        return reason.decode("utf-8", "replace") if reason else None

    def _become_the_command(self, guard: int) -> None:
        os.setsid()
        if self._prctl is not None:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:  # a worker started with nohup or in the background ignores some: the command must not
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if self._order["cwd"] is not None:
            os.chdir(_raw(self._order["cwd"]))
        argv = [_raw(text) for text in self._order["argv"]]
        os.execvpe(argv[0], argv, {_raw(name): _raw(value) for name, value in self._order["env"].items()})

    # -- ending -----------------------------------------------------------------------------------

    def _wait_for_an_end(self) -> None:
        """Wait until the command has ended, or is to be ended."""
        while self._exit is None and not self._whole:
            limits = [] if self._prctl is not None else [_PARENT_CHECK]
            if self._lease_ends is not None:
                limits.append(max(0.0, self._lease_ends - time.monotonic()))
            self._sleep(min(limits, default=None), until_told=True)
            if self._exit is None and self._lease_ends is not None and time.monotonic() >= self._lease_ends:
                self._whole = self._lease_lost = True

    def _end_what_is_left(self) -> None:
        if not self._is_left():
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a stopped process gets the other signal only then
        self._until_nothing_is_left(self._grace)
        killing_ends = time.monotonic() + _GIVE_UP
        while self._is_left() and time.monotonic() < killing_ends:
            self._signal(signal.SIGKILL)
            self._sleep(_TICK)

    def _until_nothing_is_left(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._is_left() and (left := end - time.monotonic()) > 0:
            was_whole = self._whole
            self._sleep(min(_TICK, left), until_told=not self._whole)
            if self._whole and not was_whole:  # now also those that have left the group
                self._signal(signal.SIGTERM)

    def _is_left(self) -> bool:
        self._reap()
        if self._exit is None:
            return True
        return self._group_exists() or (self._whole and bool(self._descendants()))

    def _group_exists(self) -> bool:
        try:
            os.killpg(self._pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of a group of zombies; elsewhere it cannot be ended
            return sys.platform != "darwin"
        return True

    def _signal(self, number: int) -> None:
        with suppress(OSError):  # the group has ended
            os.killpg(self._pid, number)
        for pid in self._descendants() if self._whole else ():
            try:
                os.kill(pid, number)
            except OSError:
                continue

    def _descendants(self) -> list[int]:
        """The live processes below the guard that are not in the command's group; on Linux only."""
        if self._prctl is None or not os.path.isdir("/proc/self"):
            return []
        children: dict[int, list[tuple[int, int]]] = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # "pid (name) state ppid pgrp …"; the name may contain anything
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue  # it has ended meanwhile
            below = children.setdefault(int(parent), [])
            below.append((int(entry), -1 if state in b"ZX" else int(group)))
        found, to_visit = [], [os.getpid()]
        while to_visit:
            for pid, pgrp in children.get(to_visit.pop(), ()):
                to_visit.append(pid)
                if pgrp not in (-1, self._pid):
                    found.append(pid)
        return found

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._exit = os.waitstatus_to_exitcode(status)

    # -- waiting ----------------------------------------------------------------------------------

    def _sleep(self, seconds: float | None, *, until_told: bool = False) -> None:
        """Wait for a signal, a message of the worker (with `until_told`) or the end of this time."""
        watched = [self._wakeup, self._channel] if until_told else [self._wakeup]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        if self._channel in ready:
            if not _received(self._channel):
                self._whole = True
            elif self._lease is not None:
                self._lease_ends = time.monotonic() + self._lease
        if os.getppid() != self._worker:
            self._whole = True
        self._reap()

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the worker is gone
            os.write(self._channel, json.dumps(message).encode() + b"\n")

    def _wake_on_signals(self) -> int:
        """A descriptor that becomes readable when a child ends or, with prctl, when the worker does."""
        wakeup, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # sent to the whole service: the worker decides when to stop
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return wakeup


def _raw(text: str) -> bytes:
    """The bytes of a text of the order, which has one character for each byte."""
    return text.encode("latin-1")


def _received(channel: int) -> bytes:
    """The next bytes from the worker; b"" at the end of the stream."""
    try:
        return os.read(channel, 1 << 16)
    except ConnectionError:  # it was killed while something was on its way
        return b""


def _read_order(channel: int) -> dict[str, Any] | None:
    """The first line; None if the worker has gone before it was complete."""
    text = bytearray()
    while b"\n" not in text:
        part = _received(channel)
        if not part:
            return None
        text += part
    order: dict[str, Any] = json.loads(text.partition(b"\n")[0])
    return order


def _remove(directory: str) -> None:
    """Remove a directory without folders in it."""
    with suppress(OSError):
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


def main() -> None:
    """Run the command that the worker asks for on the socket named by the first argument."""
    given = int(sys.argv[1])
    channel = os.dup(given)  # not inherited by the command, and low enough for select
    os.close(given)
    order = _read_order(channel)
    if order is not None:
        CommandGuard(channel, order, find_prctl() if order["prctl"] else None).run()


if __name__ == "__main__":
    try:
        main()
    finally:
        if len(sys.argv) > 2:  # also if the worker was killed before it could say what to run
            _remove(sys.argv[2])
        os._exit(0)  # at once: the worker waits for the end of this process
