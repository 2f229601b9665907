"""X5: a worker or server that is started before its database waits for it; one that is configured wrongly does not."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from hark import Hark
from hark.app import opening
from hark.store.postgres_faults import may_be_starting
from hark.store.protocol import Unreachable
from tests.crash.processes import HARK, ROOT
from tests.support.inspect import until
from tests.support.postgres import PostgresServer

COMMANDS = {
    "worker": ["worker", "--app", "tests.crash.worker:app"],
    "serve": ["serve", "--app", "tests.crash.worker:app", "--port", "0"],
}
READY = {"worker": "working", "serve": "serving on"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that has been set up, and is down."""
    with PostgresServer(fsync=False) as server:
        server.stop()
        yield server


class Command:
    """`hark worker` or `hark serve` on a server, and what it has said."""

    def __init__(self, command: str, url: str, folder: Path) -> None:
        self._file = folder / "said"
        environment = {"HARK_TEST_URL": url, "HARK_TEST_OPTIONS": "{}", "HARK_TEST_ROLE": "plain"}
        with self._file.open("wb") as file:
            self.process = subprocess.Popen(
                [*HARK, *COMMANDS[command]], cwd=ROOT, stdout=file, stderr=file, env={**os.environ, **environment}
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        await until(lambda: self.process.poll() is not None, "the process to end")
        return self.process.returncode


@pytest.mark.parametrize("command", COMMANDS)
async def test_x5_a_process_that_is_started_before_its_database_waits_for_it_and_says_so(
    server: PostgresServer, tmp_path: Path, command: str
) -> None:
    waiting = Command(command, server.url, tmp_path)
    try:
        await until(lambda: "Waiting up to 300 s for the database" in waiting.said, "a line in the log")
        assert "Give this role the right" not in waiting.said
        await asyncio.to_thread(server.start)
        await until(lambda: READY[command] in waiting.said, "the process to be ready")
        assert await waiting.stop() == 0
    finally:
        waiting.process.kill()
        await asyncio.to_thread(server.stop)


async def test_x5_a_process_that_waits_for_its_database_ends_when_it_is_stopped(
    server: PostgresServer, tmp_path: Path
) -> None:
    waiting = Command("worker", server.url, tmp_path)
    await until(lambda: "Waiting up to" in waiting.said, "a line in the log")
    assert await waiting.stop() == -signal.SIGTERM


async def test_x5_a_wrong_database_or_user_is_an_error_at_once(server: PostgresServer, tmp_path: Path) -> None:
    await asyncio.to_thread(server.start)
    try:
        for wrong in (server.url.replace("hark@", "no_such_user@"), f"{server.url}_not"):
            refused = Command("worker", wrong, tmp_path)
            await until(lambda refused=refused: refused.process.poll() is not None, "the process to end")
            assert refused.process.returncode == 1
            assert "PostgreSQL refuses the connection" in refused.said
            assert "Waiting" not in refused.said
    finally:
        await asyncio.to_thread(server.stop)


async def test_x5_the_wait_has_an_end(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_WAIT", 0.0)
    with pytest.raises(Unreachable, match="PostgreSQL cannot be reached"):
        await opening.open_when_reachable(Hark(server.url))


async def test_x5_your_own_code_does_not_wait(server: PostgresServer) -> None:
    with pytest.raises(Unreachable, match="PostgreSQL cannot be reached"):
        async with Hark(server.url):
            pass


async def test_x5_a_server_that_is_still_starting_is_waited_for() -> None:
    """It accepts connections already, and answers each with 57P03."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(8):
            await reader.read(int.from_bytes(head[:4]) - 8)
            if head[4:] == (80877103).to_bytes(4):  # asks for TLS
                writer.write(b"N")
                continue
            fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
            writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
            writer.close()
            return

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as starting:
        port = starting.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match="the database system is starting up"):
            async with Hark(f"postgresql://hark@127.0.0.1:{port}/postgres"):
                pass


@pytest.mark.parametrize(
    ("error", "starting"),
    [
        (asyncpg.CannotConnectNowError("starting up"), True),
        (asyncpg.AdminShutdownError("shutting down"), True),
        (asyncpg.TooManyConnectionsError("too many clients"), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (OSError("Name or service not known"), True),
        (asyncpg.InvalidPasswordError("wrong"), False),
        (asyncpg.InvalidCatalogNameError("no such database"), False),
        (asyncpg.InsufficientPrivilegeError("no right"), False),
        (PermissionError(13, "the socket"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_x5_only_what_may_pass_is_waited_for(error: Exception, starting: bool) -> None:
    assert may_be_starting(error) is starting
