"""X5, fault 83: a database that accepts no writes is reported, and signals of the system are obeyed meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from hark import Hark, StoreUnavailable
from hark.app import opening
from tests.crash.processes import HARK
from tests.support.http import app_on, serving
from tests.support.inspect import query, until
from tests.support.postgres import PostgresServer
from tests.support.stores import Store

pytestmark = pytest.mark.slow

_COMMANDS = {
    "worker": ["worker", "--grace", "1"],
    "worker with metrics": ["worker", "--grace", "1", "--metrics-port", "0"],
    "two workers": ["worker", "--grace", "1", "--processes", "2"],
    "serve": ["serve", "--grace", "1", "--port", "0"],
}
_SHOP = """
import os
from hark import Done, Hark, Machine, step

app = Hark(os.environ["HARK_TEST_URL"])

class Order(Machine):
    @step
    async def start(self, ctx):
        return Done()

app.register(Order)
"""
_PYTHON = """
import asyncio, os, signal, sys
from hark import Hark

app = Hark(os.environ["HARK_TEST_URL"])

async def main():
    async with app, app.worker():
        print("working", flush=True)

if sys.argv[1] == "async":
    asyncio.run(main())
else:
    with app, app.worker():
        print("working", flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, with the tables: its settings are changed."""
    options = {"max_connections": "12", "superuser_reserved_connections": "0", "autovacuum": "off"}
    with PostgresServer(fsync=False, options=options) as server:
        with Hark(server.url):
            pass
        yield server


async def _configure(server: PostgresServer, **settings: str | None) -> None:
    db = await asyncpg.connect(server.url, server_settings={"default_transaction_read_only": "off"})
    for name, value in settings.items():
        await db.execute(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = {value}")
    await db.execute("SELECT pg_reload_conf()")
    await db.close()


class Command:
    def __init__(self, command: list[str], url: str, folder: Path) -> None:
        self._file = folder / "said"
        environment = {"HARK_TEST_URL": url, "HARK_DB": url}
        with self._file.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=file, stderr=file, env={**os.environ, **environment}
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    async def stop(self, number: int) -> int:
        begun = time.monotonic()
        self.process.send_signal(number)
        await until(lambda: self.process.poll() is not None, "the process to end", 30)
        assert time.monotonic() - begun < 10
        return self.process.returncode


@contextmanager
def _run(command: list[str], url: str, folder: Path) -> Iterator[Command]:
    running = Command(command, url, folder)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        print(running.said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", _COMMANDS)
async def test_x5_fault_83_a_worker_that_starts_on_a_read_only_database_says_so_and_obeys_signals(
    server: PostgresServer, tmp_path: Path, command: str, number: int
) -> None:
    await _configure(server, default_transaction_read_only="on")
    try:
        with _run([*HARK, *_COMMANDS[command]], server.url, tmp_path) as running:
            await until(lambda: "The worker cannot start" in running.said, "it to say why it waits", 30)
            assert "read-only" in running.said
            assert await running.stop(number) == 0
            assert "Traceback" not in running.said
    finally:
        await _configure(server, default_transaction_read_only=None)


async def test_x5_fault_83_an_app_whose_definitions_cannot_be_recorded_ends_with_an_error(
    server: PostgresServer, tmp_path: Path
) -> None:
    await _configure(server, default_transaction_read_only="on")
    (tmp_path / "shop.py").write_text(_SHOP)
    try:
        with _run([*HARK, "worker", "--app", "shop:app"], server.url, tmp_path) as running:
            await until(lambda: running.process.poll() is not None, "it to end", 30)
            assert running.process.returncode > 0
            assert "it is read-only" in running.said
            assert "Traceback" not in running.said
    finally:
        await _configure(server, default_transaction_read_only=None)


@pytest.mark.parametrize("command", ["worker", "serve"])
async def test_x5_fault_83_a_worker_that_waits_starts_when_the_database_is_writable(
    server: PostgresServer, tmp_path: Path, command: str
) -> None:
    await _configure(server, default_transaction_read_only="on")
    try:
        with _run([*HARK, *_COMMANDS[command]], server.url, tmp_path) as running:
            await until(lambda: "The worker cannot start" in running.said, "it to say why it waits", 30)
            await _configure(server, default_transaction_read_only=None)
            await until(lambda: "press Ctrl-C" in running.said, "it to work", 30)
            assert await running.stop(signal.SIGTERM) == 0
    finally:
        await _configure(server, default_transaction_read_only=None)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_x5_fault_83_a_program_of_your_own_is_interrupted_while_its_worker_waits(
    server: PostgresServer, tmp_path: Path, kind: str
) -> None:
    await _configure(server, default_transaction_read_only="on")
    try:
        with _run([sys.executable, "-c", _PYTHON, kind], server.url, tmp_path) as running:
            await until(lambda: "The worker cannot start" in running.said, "it to say why it waits", 30)
            assert await running.stop(signal.SIGINT) == -signal.SIGINT
            said = running.said.replace("KeyboardInterrupt", "").splitlines()
            assert running.said.count("KeyboardInterrupt") >= 1
            assert not [line for line in said if "never" in line or "destroyed" in line or "Exception in" in line]
    finally:
        await _configure(server, default_transaction_read_only=None)


async def test_x5_fault_83_a_worker_that_finds_no_free_connection_obeys_signals(
    server: PostgresServer, tmp_path: Path
) -> None:
    """At every number of connections that are left: opening, the lease and the listener each need one."""
    taken: list[asyncpg.Connection] = []
    for free in range(4):
        while len(taken) < 12 - free:
            taken.append(await asyncpg.connect(server.url))
        while len(taken) > 12 - free:
            await taken.pop().close()
        folder = tmp_path / str(free)
        folder.mkdir()
        with _run([*HARK, *_COMMANDS["worker"]], server.url, folder) as running:
            await until(
                lambda: "too many clients" in running.said or "press Ctrl-C" in running.said, "it to say so", 30
            )
            number = signal.SIGTERM
            assert await running.stop(number) in (0, -number), "before it has opened, a signal ends it by itself"
            assert "Traceback" not in running.said
    for db in taken:
        await db.close()


async def test_x5_fault_83_health_is_503_and_doctor_says_what_to_do_while_the_database_is_read_only(
    server: PostgresServer,
) -> None:
    store = Store("postgres", server.url)
    doctor = [*HARK, "doctor", "--db", server.url, "--json"]
    async with serving(app_on(store), worker=False) as http:
        assert (await http.get("/health")).status_code == 200
        await _configure(server, default_transaction_read_only="on")
        try:

            async def is_unavailable() -> bool:
                return (await http.get("/health")).status_code == 503

            await until(is_unavailable, "the settings to be read")
            answer = (await http.get("/health")).json()
            assert answer["status"] == "unavailable"
            assert "read-only" in answer["error"]
            said = await asyncio.to_thread(subprocess.run, doctor, capture_output=True, check=False)
            assert said.returncode == 1
            [check] = [check for check in json.loads(said.stdout) if check["check"] == "store"]
            assert check["status"] == "error"
            assert "default_transaction_read_only" in check["text"]
        finally:
            await _configure(server, default_transaction_read_only=None)

        async def is_healthy() -> bool:
            return (await http.get("/health")).status_code == 200

        await until(is_healthy, "the settings to be read")
    said = await asyncio.to_thread(subprocess.run, doctor, capture_output=True, check=False)
    assert [check["status"] for check in json.loads(said.stdout) if check["check"] == "store"] == ["ok"]


async def test_x5_fault_83_a_running_worker_on_a_database_that_becomes_read_only_obeys_signals(
    server: PostgresServer, tmp_path: Path
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            with _run([*HARK, *_COMMANDS["worker"]], server.url, tmp_path) as running:
                await until(lambda: "press Ctrl-C" in running.said, "it to work", 30)
                await _configure(server, default_transaction_read_only="on")
                assert await running.stop(number) == 0
                assert "Traceback" not in running.said
        finally:
            await _configure(server, default_transaction_read_only=None)


async def test_x5_fault_83_a_worker_of_a_door_gives_up_after_five_minutes(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _configure(server, default_transaction_read_only="on")
    monkeypatch.setattr(opening, "_WAIT", 0.3)
    try:
        async with Hark(server.url) as app:
            with pytest.raises(StoreUnavailable, match="has accepted no lease"):
                await opening.start_unless_stopped(app.worker(), asyncio.Event())
            await _configure(server, default_transaction_read_only=None)
            async with app.worker():
                """The first one has left nothing behind."""
    finally:
        await _configure(server, default_transaction_read_only=None)


# -- SQLite ----------------------------------------------------------------------------------------


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Make a folder and its files read-only: for root, whom no mode stops, with a mount."""
    if os.geteuid() != 0:
        modes = {path: path.stat().st_mode for path in (folder, *folder.iterdir())}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        yield
        for path, mode in modes.items():
            path.chmod(mode)
        return
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


async def test_x5_fault_83_a_sqlite_file_that_cannot_be_written_is_reported_and_signals_are_obeyed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with Hark(sqlite_store.url):
        pass
    await query(sqlite_store, "SELECT 1")
    folder = Path(sqlite_store.url.removeprefix("sqlite:///")).parent
    doctor = [*HARK, "doctor", "--db", sqlite_store.url, "--json"]
    said_in = tmp_path.parent / f"{tmp_path.name}-said"
    said_in.mkdir()
    with _read_only(folder):
        said = await asyncio.to_thread(subprocess.run, doctor, capture_output=True, check=False)
        assert said.returncode == 1, said
        [check] = [check for check in json.loads(said.stdout) if check["check"] == "store"]
        assert "writable" in check["text"]
        with _run([*HARK, *_COMMANDS["worker"]], sqlite_store.url, said_in) as running:
            await until(
                lambda: running.process.poll() is not None or "cannot start" in running.said, "it to say what is wrong"
            )
            if running.process.poll() is None:
                assert await running.stop(signal.SIGTERM) == 0
            assert "Traceback" not in running.said
