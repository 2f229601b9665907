"""Run a command: its output collected, its stderr given line by line, and nothing of it left afterwards.

However `run_command` ends (the command's own end, a timeout, a cancellation, an error), the command and everything it
started have ended before it returns. If the process that called it is killed, the guard sees to that (guard.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hark.engine.commands import guard
from hark.engine.commands.lease_relay import LeaseRelay
from hark.engine.commands.lines import LineSplitter
from hark.engine.commands.pipes import PipeReader, PipeWriter

GRACE: Final = 2.0  # seconds from SIGTERM to SIGKILL: the task may be about to run again elsewhere
MAX_TAIL: Final = 4096  # characters of stderr that an error quotes
_USE_PRCTL = True  # tests set it to False: as on platforms that have none


@dataclass(frozen=True)
class CommandLine:
    """The program to run with its arguments, its whole environment, its directory, and its stdin.

    `scratch` is a directory without folders in it that is removed when the command has ended.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes = b""
    scratch: str | None = None


@dataclass(frozen=True)
class CommandEnd:
    """The end of a command.

    `exit` is its exit code, or the negative number of the signal that ended it. `stdout` is cut at the limit, and
    `stdout_bytes` is what it wrote in all. `stderr_tail` is the end of its stderr. `lease_lost`: its guard ended it,
    because the lease of the worker was not renewed in time.
    """

    exit: int
    stdout: bytes
    stdout_bytes: int
    stderr_tail: str
    timed_out: bool
    lease_lost: bool = False


class CommandNotRun(Exception):
    """The command could not be started, or its guard was killed. The message says which."""


OnLine = Callable[[str], Awaitable[None]]


async def run_command(
    command: CommandLine,
    *,
    max_stdout: int,
    on_stderr: OnLine,
    timeout: float | None = None,
    grace: float = GRACE,
    lease: LeaseRelay | None = None,
) -> CommandEnd:
    """Run a command to its end.

    Args:
        command: What to run.
        max_stdout: How many bytes of stdout are kept. The rest is read and dropped.
        on_stderr: Awaited with each line of stderr as it comes. While it waits, stderr is not read on.
        timeout: Seconds after which the command is ended; None for never.
        grace: Seconds from SIGTERM to SIGKILL.
        lease: The lease of the worker: the command ends with it. None: nothing but the worker's life counts.

    Raises:
        CommandNotRun: It could not be started, or its guard was killed.
    """
    running = _Running(command, max_stdout, on_stderr, grace, lease)
    try:
        timed_out = await running.until_ended(timeout)
    finally:
        await running.end()
    if running.exit is None:
        raise CommandNotRun(running.error or "The guard process of the command was killed, and the command with it.")
    return CommandEnd(
        running.exit,
        bytes(running.stdout),
        running.stdout_bytes,
        running.stderr_tail.lstrip("\n"),
        timed_out,
        running.lease_lost,
    )


@dataclass
class _Pipes:
    stdin: PipeWriter
    stdout: PipeReader
    stderr: PipeReader


class _Running:
    """A command that runs, with the tasks that serve it."""

    def __init__(
        self, command: CommandLine, max_stdout: int, on_stderr: OnLine, grace: float, lease: LeaseRelay | None
    ) -> None:
        self.lease_lost = False
        self.exit: int | None = None
        self.error: str | None = None
        self.stdout = bytearray()
        self.stdout_bytes = 0
        self.stderr_tail = ""
        self._max_stdout = max_stdout
        self._on_stderr = on_stderr
        self._lease = lease
        self._channel, self._pipes, self._process = _spawn_guard(command.scratch)
        self._pid: int | None = None
        loop = asyncio.get_running_loop()
        self._guarded = loop.create_task(self._follow_guard())
        self._tasks = [
            self._guarded,
            loop.create_task(self._send_order(_order(command, grace, lease))),
            loop.create_task(self._pipes.stdin.write_all(command.stdin)),
            loop.create_task(self._collect_stdout()),
            loop.create_task(self._pass_on_stderr()),
        ]

    async def until_ended(self, timeout: float | None) -> bool:
        """Wait until the command has ended and its output was read. Return True if the timeout ended it.

        Raises:
            Exception: What `on_stderr` raised.
        """
        done, _ = await asyncio.wait(self._tasks, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        timed_out = not self._guarded.done()
        if timed_out:
            self._tell_guard_to_end_it()
        for task in self._tasks:
            await task
        return timed_out

    async def end(self) -> None:
        """End the command if it runs. Nothing of it is left then, however often the caller is cancelled."""
        self._tell_guard_to_end_it()
        cancelled: asyncio.CancelledError | None = None
        while not self._guarded.done():
            try:
                await asyncio.wait([self._guarded])
            except asyncio.CancelledError as error:
                cancelled = error
        for task in self._tasks:
            task.cancel()
        while not all(task.done() for task in self._tasks):
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as error:
                cancelled = error
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # raised by until_ended, or of no interest any more
        if self._lease is not None:
            self._lease.discard(self._channel)
        self._pipes.stdin.close()
        self._pipes.stdout.close()
        self._pipes.stderr.close()
        self._channel.close()
        if cancelled is not None:
            raise cancelled

    def _tell_guard_to_end_it(self) -> None:
        with contextlib.suppress(OSError):  # the guard has ended
            self._channel.shutdown(socket.SHUT_WR)

    async def _send_order(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # _follow_guard says what has become of it
            await asyncio.get_running_loop().sock_sendall(self._channel, order)
            if self._lease is not None:
                self._lease.add(self._channel)  # not before: the order comes first, and whole

    async def _follow_guard(self) -> None:
        """Wait until the guard has ended, and with it the command."""
        loop = asyncio.get_running_loop()
        rest = b""
        try:
            while part := await _receive(loop, self._channel):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            if self.exit is None and self._pid is not None:  # the guard was killed
                with contextlib.suppress(OSError):
                    os.killpg(self._pid, 9)
            while self._process.poll() is None:  # it ends directly after it has closed the socket
                await asyncio.sleep(0.002)
        finally:
            self._pipes.stdout.finish()
            self._pipes.stderr.finish()

    def _take(self, message: dict[str, Any]) -> None:
        self._pid = message.get("pid", self._pid)
        self.exit = message.get("exit", self.exit)
        self.error = message.get("error", self.error)
        self.lease_lost = message.get("lease_lost", self.lease_lost)

    async def _collect_stdout(self) -> None:
        while part := await self._pipes.stdout.read():
            self.stdout_bytes += len(part)
            self.stdout += part[: self._max_stdout - len(self.stdout)]

    async def _pass_on_stderr(self) -> None:
        splitter = LineSplitter()
        data = b"-"
        while data:
            data = await self._pipes.stderr.read()
            for line in splitter.feed(data, final=not data):
                self.stderr_tail = f"{self.stderr_tail}\n{line}"[-MAX_TAIL:]
                await self._on_stderr(line)


async def _receive(loop: asyncio.AbstractEventLoop, channel: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(channel, 4096)
    except ConnectionError:
        return b""


def _spawn_guard(scratch: str | None) -> tuple[socket.socket, _Pipes, subprocess.Popen[bytes]]:
    """A guard that waits for its order. Its standard streams are those of the command."""
    if not sys.executable:
        raise CommandNotRun("The guard of a command needs a Python interpreter, and sys.executable is empty.")
    interpreter = [sys.executable, "-I", "-S", str(Path(guard.__file__))]
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        channel, guards_channel = socket.socketpair()
        ours.callback(channel.close)
        theirs.callback(guards_channel.close)
        stdin, write_stdin = _pipe(theirs, ours)
        read_stdout, stdout = _pipe(ours, theirs)
        read_stderr, stderr = _pipe(ours, theirs)
        process = subprocess.Popen(
            [*interpreter, str(guards_channel.fileno()), *(() if scratch is None else (scratch,))],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[guards_channel.fileno()],
            start_new_session=True,
        )
        channel.setblocking(False)
        ours.pop_all()
        return channel, _Pipes(PipeWriter(write_stdin), PipeReader(read_stdout), PipeReader(read_stderr)), process


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with these."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def _order(command: CommandLine, grace: float, lease: LeaseRelay | None) -> bytes:
    """The line that tells the guard what to run. One character for each byte: an environment need not be UTF-8.

    The guard's lease is shorter than that of the worker: the command is to have ended when others may take over.
    """
    seconds = None if lease is None else lease.seconds
    early = 0.0 if seconds is None else min(grace, seconds / 4)
    order = {
        "argv": [_raw(text) for text in command.argv],
        "env": {_raw(name): _raw(value) for name, value in command.env.items()},
        "cwd": None if command.cwd is None else _raw(command.cwd),
        "grace": grace,
        "lease": None if seconds is None else seconds - early,
        "lease_left": None if lease is None else max(0.0, lease.left() - early),
        "prctl": _USE_PRCTL,
        "worker": os.getpid(),
    }
    return json.dumps(order).encode() + b"\n"


def _raw(text: str) -> str:
    return os.fsencode(text).decode("latin-1")
