"""Pipes to and from a command, on the event loop.

Not asyncio's streams: when the command has ended, what it wrote must be read to the last byte but not longer, because
a daemon that it left behind may hold the pipe open for ever. Only a read of our own tells an empty pipe from a late
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

_CHUNK = 1 << 16


class PipeReader:
    """The reading end of a pipe. It owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._writers_ended = False
        self._look = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes; b"" when there will be none."""
        await asyncio.sleep(0)  # a command that always has something to say does not hold the loop
        while True:
            last = self._writers_ended
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                if last:
                    return b""
            await self._readable()

    def finish(self) -> None:
        """Read the rest, which is what the pipe holds now that the command has ended."""
        self._writers_ended = True
        self._look.set()

    def close(self) -> None:
        os.close(self._descriptor)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, self._look.set)
        try:
            await self._look.wait()
        finally:
            loop.remove_reader(self._descriptor)
        self._look.clear()


class PipeWriter:
    """The writing end of a pipe. It owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    async def write_all(self, data: bytes) -> None:
        """Write this and close the pipe. What a command does not read before it ends is dropped."""
        rest = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while rest and self._descriptor is not None:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    await self._writable(self._descriptor)
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    async def _writable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(descriptor, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(descriptor)
