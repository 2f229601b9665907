"""The supervisor: `hark worker --processes N` and `hark serve --processes N`.

It starts N processes with its own command line, starts those again that die, and stops all of them together. It opens
no store and does not import the app, so it stays small and hardly anything can end it.

- Processes are started afresh and not forked: an app may start threads, event loops and connections when it is
  imported, and none of them survives a fork. So every process is what it would be without a supervisor.
- The first one is started alone. If it ends before it is ready, the options, the app or the store are at fault: its
  error is printed once, and its exit code is that of the supervisor. It also applies the migrations alone.
- A socket that the processes listen on is opened here and inherited. The port stays taken while a process is started
  again, connections that wait are accepted by the others, and a process that is busy accepts fewer. SO_REUSEPORT would
  spread idle connections more evenly (of 64 to 4 processes: 11 to 22 each, against 2 to 41), but each process would
  have a queue of its own: connections in it would wait for a step that blocks the event loop, and be lost with the
  process.
- The processes stop when the supervisor ends, even by SIGKILL: see supervised.py.
- Each process has a process group of its own, so that Ctrl-C reaches the supervisor only. Otherwise it would interrupt
  processes that still import the app, each with a traceback.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from hark.doors.cli.supervised import READY, ProcessPlace, stop_time
from hark.model.errors import InvalidInput
from hark.model.log import get_logger

_log = get_logger()
_STEADY: Final = 30.0  # seconds after which the death of a process is not a part of a series
_FIRST_DELAY: Final = 0.5
_MAX_DELAY: Final = 30.0
_SAME_SIGNAL: Final = 1.0  # seconds: `Ctrl-C` and the wrapper that forwards it are one request to stop
_LONGEST_SLEEP: Final = 3600.0


def restart_delay(quick_deaths: int) -> float:
    """Seconds to wait before a restart, after this many deaths in a row that came soon after a start."""
    if quick_deaths <= 1:
        return 0.0
    return min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** min(quick_deaths - 2, 16))


def child_command(arguments: Sequence[str]) -> list[str]:
    """The command line of a process that runs `hark` with these arguments: that of this process, if it has them."""
    own = sys.orig_argv
    if sys.argv[1:] == [*arguments] == own[len(own) - len(arguments) :]:
        return [sys.executable, *own[1:]]
    return [sys.executable, "-m", "hark", *arguments]


@dataclass
class _Process:
    """A process through all its restarts."""

    number: int
    listener: socket.socket | None
    start_at: float | None = None
    """When it is to be started; None while it runs, or must not run."""
    popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    channel: socket.socket | None = None
    started_at: float = 0.0
    is_ready: bool = False
    was_ready: bool = False
    quick_deaths: int = 0


class Supervisor:
    """Runs N processes until SIGTERM or Ctrl-C.

    Args:
        command: The command line of each process.
        listeners: For each process the socket that it listens on, or None. Closed at the end.
        grace: Seconds that a process gives running steps when it stops.
        on_ready: Called with the number of a process when it begins to work for the first time.
        on_all_ready: Called when all of them have been.
        on_stop: Called when a signal stops them.
    """

    def __init__(
        self,
        command: Sequence[str],
        listeners: Sequence[socket.socket | None],
        *,
        grace: float,
        on_ready: Callable[[int], None],
        on_all_ready: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        if sys.platform == "win32":
            raise InvalidInput("--processes needs Unix. Start `hark` several times instead.")
        self._command = command
        self._stop_time = stop_time(grace)
        self._on_ready, self._on_all_ready, self._on_stop = on_ready, on_all_ready, on_stop
        self._processes = [_Process(number, listener) for number, listener in enumerate(listeners, 1)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._first_signal_at = 0.0
        self._kill_at: float | None = None  # set when the processes are to stop
        self._exit_code = 0

    def run(self) -> int:
        """Run the processes, and return the exit code when all have ended."""
        with self._wake_on_signals():
            self._processes[0].start_at = 0.0
            while not self._is_stopping or self._running():
                self._start_what_is_due()
                self._sleep()
                self._take_signals()
                for process in self._running():
                    self._take_end(process)
                self._kill_what_does_not_stop()
        return self._exit_code

    @property
    def _is_stopping(self) -> bool:
        return self._kill_at is not None

    def _running(self) -> list[_Process]:
        return [process for process in self._processes if process.popen is not None]

    # -- starting ---------------------------------------------------------------------------------

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for process in self._processes:
            if process.start_at is not None and process.start_at <= now and not self._is_stopping:
                self._start(process)

    def _start(self, process: _Process) -> None:
        process.start_at, process.started_at, process.is_ready = None, time.monotonic(), False
        try:
            process.popen, process.channel = self._popen(process)
        except OSError as error:  # too many processes or open files
            self._start_again(process, f"cannot be started: {error}")
        else:
            self._selector.register(process.channel, selectors.EVENT_READ, process)

    def _popen(self, process: _Process) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        listener = None if process.listener is None else process.listener.fileno()
        place = ProcessPlace(process.number, theirs.fileno(), listener)
        passed = [theirs.fileno()] if listener is None else [theirs.fileno(), listener]
        with theirs:
            try:
                popen = subprocess.Popen(
                    self._command, env=place.environment(), pass_fds=passed, stdin=subprocess.DEVNULL, process_group=0
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)  # a process that it has forked may hold the other end when it has ended
        return popen, ours

    def _take_ready(self, process: _Process) -> None:
        """Read the channel of a process, which is ready or has closed its end."""
        assert process.popen is not None
        assert process.channel is not None
        received = b""
        with suppress(OSError):
            received = process.channel.recv(1)
        self._selector.unregister(process.channel)  # nothing else comes: `wait` says how it ended
        if received != READY or self._is_stopping:
            return
        process.is_ready = True
        if process.was_ready:
            _log.info("Process %d (pid %d) is ready again.", process.number, process.popen.pid)
            return
        process.was_ready = True
        self._on_ready(process.number)
        if all(one.was_ready for one in self._processes):
            self._on_all_ready()
        for one in self._processes:
            if not one.started_at:
                one.start_at = 0.0

    # -- ending -----------------------------------------------------------------------------------

    def _take_end(self, process: _Process) -> None:
        """Notice that a process has ended, and decide what follows from it."""
        assert process.popen is not None
        if process.popen.poll() is None:
            return
        pid, code = process.popen.pid, process.popen.returncode
        if process.channel is not None:
            if process.channel in self._selector.get_map():
                self._take_ready(process)  # it may have reported just before
            process.channel.close()
        process.popen = process.channel = None
        if self._is_stopping:
            if code not in (0, -signal.SIGTERM) and not self._exit_code:
                self._exit_code = code if code > 0 else 1
        elif code >= 0 and not process.is_ready:
            self._exit_code = code  # its error is printed; it would be the same the next time
            if any(one.was_ready for one in self._processes):
                _log.error("Process %d (pid %d) cannot start (exit code %d): all stop.", process.number, pid, code)
            self._stop()
        else:
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
            self._start_again(process, f"(pid {pid}) {how}")

    def _start_again(self, process: _Process, why: str) -> None:
        now = time.monotonic()
        process.quick_deaths = process.quick_deaths + 1 if now - process.started_at < _STEADY else 1
        delay = restart_delay(process.quick_deaths)
        process.start_at = now + delay
        _log.warning(
            "Process %d of %d %s. It is started again %s; its unfinished steps run again.",
            process.number, len(self._processes), why, f"in {delay:g} s" if delay else "at once",
        )  # fmt: skip

    def _stop(self) -> None:
        self._kill_at = time.monotonic() + self._stop_time
        for process in self._processes:
            process.start_at = None
            if process.listener is not None:
                process.listener.close()  # a client must not wait for a process that does not accept any more
            if process.popen is not None:
                process.popen.terminate()

    def _kill_what_does_not_stop(self) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = time.monotonic() + _LONGEST_SLEEP
        for process in self._running():
            if process.popen is not None and process.popen.poll() is None:
                _log.error(
                    "Process %d (pid %d) has not stopped and is killed; its unfinished steps run again.",
                    process.number, process.popen.pid,
                )  # fmt: skip
                process.popen.kill()

    # -- waiting ----------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        """Stop at the first signal; at a later one, kill what has not stopped."""
        received, self._signals = self._signals, []
        now = time.monotonic()
        if not any(number in (signal.SIGTERM, signal.SIGINT) for number in received):
            return
        if not self._first_signal_at:
            self._first_signal_at = now
            if not self._is_stopping:
                self._on_stop()
                self._stop()
        elif now - self._first_signal_at > _SAME_SIGNAL:
            self._kill_at = now

    def _sleep(self) -> None:
        """Sleep until a signal comes, a process reports or ends, or something is due."""
        due = [process.start_at for process in self._processes if process.start_at is not None]
        if self._kill_at is not None:
            due.append(self._kill_at)
        left = min(due, default=_LONGEST_SLEEP + time.monotonic()) - time.monotonic()
        for key, _ in self._selector.select(min(max(left, 0.0), _LONGEST_SLEEP)):
            if isinstance(key.data, _Process):
                self._take_ready(key.data)
            else:
                os.read(key.fd, 4096)

    @contextmanager
    def _wake_on_signals(self) -> Iterator[None]:
        """Collect signals, and end the sleep when one comes: also SIGCHLD.

        The handlers stay: this process is about to exit, and a further signal must not change its exit code.
        """
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._selector.register(reading, selectors.EVENT_READ)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda received, _: self._signals.append(received))
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            self._selector.close()
            os.close(reading)
            os.close(writing)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
