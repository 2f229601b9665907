"""D1: `--processes N`: all processes work, one that dies is started again, and all of them stop together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from hark import Context, Done, Hark, InstanceFailed, Machine, step
from tests.crash.machines import ALL, Blocking, Gated, Parses
from tests.crash.processes import HARK, Workers, gone
from tests.support.inspect import query, until
from tests.support.stores import Store, sqlite_file

APP = """
import os
import pathlib

from hark import Hark

pathlib.Path(f"imported-{os.getpid()}").touch()
if pathlib.Path("broken").exists():
    raise RuntimeError("the file is there")
app = Hark("sqlite:///hark.db")
"""

QUITS = """
import os
import pathlib

from hark import Done, Hark, Machine, step

app = Hark()


class Quits(Machine):
    @step
    async def start(self, ctx):
        if not pathlib.Path("has_quit").exists():
            pathlib.Path("has_quit").touch()
            os._exit(3)
        return Done()


app.register(Quits)
"""


class Quits(Machine):
    """The machine of that name above, to start it."""

    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children(process: subprocess.Popen[str]) -> list[int]:
    return sorted(child.pid for child in psutil.Process(process.pid).children())


async def all_ended(pids: list[int] | set[int]) -> None:
    await until(lambda: all(map(has_ended, pids)), "the processes to end")


def said(process: subprocess.Popen[str]) -> str:
    """What an ended supervisor and its processes have said, and was not read yet."""
    assert process.stdout is not None
    return process.stdout.read()


async def assert_handed_back(store: Store, instances: int) -> None:
    expected = [("runnable", 0, 0)] * instances
    assert await query(store, "SELECT status, attempt, crashes FROM instances") == expected
    assert await query(store, "SELECT count(*) FROM workers") == [(0,)]


async def test_d1_all_processes_take_work_and_hand_it_back_on_sigterm(store: Store, tmp_path: Path) -> None:
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            supervisor = workers.start("--processes", "3", "--queue", "default=1", "--grace", "0.1")
            for _ in range(3):
                await app.start(Gated)
            await workers.until_traced("start 0", times=3)  # each has one slot
            pids = {life.pid for life in workers.trace()}
            assert sorted(pids) == children(supervisor)
            supervisor.send_signal(signal.SIGTERM)
            assert await gone(supervisor) == 0
            await all_ended(pids)
            await assert_handed_back(store, 3)
    assert len(pids) == 3


async def test_d1_a_process_that_is_killed_is_started_again_and_nothing_is_lost(store: Store, tmp_path: Path) -> None:
    with Workers(store, tmp_path, lease=1.5) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            supervisor = workers.start("--processes", "2", "--queue", "default=1")
            handles = [await app.start(Gated) for _ in range(2)]
            await workers.until_traced("start 0", times=2)
            killed, other = (life.pid for life in workers.trace())
            os.kill(killed, signal.SIGKILL)
            # Both have one slot, so the second instance runs in the new process.
            await until(
                lambda: {life.pid for life in workers.trace()} - {killed, other}, "the new process to take work"
            )
            workers.open_gate()
            assert killed not in [await handle.result(timeout=60) for handle in handles]
            supervisor.send_signal(signal.SIGTERM)
            assert await gone(supervisor) == 0
        assert [life.what for life in workers.trace() if life.what.startswith("end")] == ["end 0", "end 0"]
        lines = said(supervisor).splitlines()
    [warning] = [line for line in lines if "It is started again" in line]
    assert f"(pid {killed}) was killed by SIGKILL. It is started again at once" in warning
    assert [line for line in lines if line.startswith(("working", "stopping"))] == [
        "working in 2 processes; press Ctrl-C or send SIGTERM to stop",
        "stopping: running steps finish or are handed back",
    ]


async def test_d1_processes_whose_supervisor_is_killed_stop_and_hand_back_their_steps(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            supervisor = workers.start("--processes", "2", "--queue", "default=1", "--grace", "0.1")
            for _ in range(2):
                await app.start(Gated)
            await workers.until_traced("start 0", times=2)
            supervisor.kill()
            await all_ended({life.pid for life in workers.trace()})
            await assert_handed_back(store, 2)


async def test_d1_a_second_signal_kills_what_does_not_stop(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            supervisor = workers.start("--processes", "2", "--grace", "60")
            await app.start(Blocking)
            await workers.until_traced("start 0")
            [blocked] = workers.trace()

            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.stdout is not None
            await until(lambda: "stopping" in supervisor.stdout.readline(), "it to stop")
            much_later = time.monotonic() + 1.1  # before that it would count as the same signal
            await until(lambda: time.monotonic() > much_later, "a second to pass")
            supervisor.send_signal(signal.SIGTERM)
            assert await gone(supervisor) == 1
            assert has_ended(blocked.pid)
        assert f"(pid {blocked.pid}) has not stopped and is killed" in said(supervisor)


def test_d1_a_process_that_cannot_start_again_ends_all_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    command = [*HARK, "worker", "--app", "shop:app", "--processes", "2"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **streams) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline().startswith("working in 2 processes;")
        pids = children(supervisor)
        assert {file.name for file in tmp_path.glob("imported-*")} == {f"imported-{pid}" for pid in pids}
        (tmp_path / "broken").touch()
        os.kill(pids[0], signal.SIGKILL)
        text = said(supervisor)  # all processes have ended: none holds the pipe
        assert supervisor.wait(100) == 2
    assert text.count("hark: --app shop:app cannot be loaded: RuntimeError: the file is there.") == 1
    assert "cannot start (exit code 2): all stop." in text


def test_d1_a_process_that_its_first_step_ends_is_started_again(sqlite_store: Store, tmp_path: Path) -> None:
    """It has not failed to start."""
    (tmp_path / "shop.py").write_text(QUITS)
    with Hark(sqlite_store.url) as app:
        app.start(Quits).result()
    command = [*HARK, "worker", "--app", "shop:app", "--processes", "2", "--db", sqlite_store.url]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **streams) as supervisor:
        assert supervisor.stdout is not None
        lines = []
        while not lines or "is ready again" not in lines[-1]:
            lines.append(supervisor.stdout.readline())
            assert lines[-1], lines
        supervisor.terminate()
        assert supervisor.wait(100) == 0
    [warning] = [line for line in lines if "WARNING Process" in line]
    assert "ended with exit code 3. It is started again at once" in warning


async def test_m5_fault_76_a_step_that_exits_ends_neither_a_process_nor_what_runs_there(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            supervisor = workers.start("--processes", "2", "--queue", "default=4")
            beside = [await app.start(Gated) for _ in range(6)]
            await workers.until_traced("start 0", times=6)
            pids = children(supervisor)
            parses = await app.start(Parses)
            with pytest.raises(InstanceFailed, match=r"5 times in a row.*SystemExit: 2.*argparse"):
                await parses.result(timeout=60)
            workers.open_gate()
            assert {await one.result(timeout=60) for one in beside} <= set(pids)
            assert children(supervisor) == pids
            assert not [life for life in workers.trace() if life.what.startswith("handle")]


# -- a server ---------------------------------------------------------------------------------------


def ask(port: int) -> None:
    """A request on a connection of its own."""
    assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=100).json()["status"] == "ok"


async def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the process to be stopped")


async def test_d1_a_server_answers_in_all_processes_on_one_port_also_while_one_is_started_again(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path) as workers:
        supervisor = workers.start("--processes", "2", "--port", "0", "--grace", "0.1", "--no-worker", verb="serve")
        assert supervisor.stdout is not None
        line = supervisor.stdout.readline()
        assert line.startswith("serving on http://127.0.0.1:"), line
        port = int(line.split()[2].rpartition(":")[2])
        first, second = children(supervisor)
        for frozen in (first, second):
            await freeze(frozen)
            ask(port)  # answered by the other
            os.kill(frozen, signal.SIGCONT)
        os.kill(first, signal.SIGKILL)
        while "is ready again" not in (line := supervisor.stdout.readline()):
            assert "was killed by SIGKILL" in line
            ask(port)
        await freeze(second)
        ask(port)  # answered by the new one
        os.kill(second, signal.SIGCONT)
        pids = children(supervisor)
        supervisor.send_signal(signal.SIGINT)
        assert await gone(supervisor) == 0
        await all_ended(pids)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        lines = said(supervisor).splitlines()
        assert [line for line in lines if line.startswith(("serving", "stopping"))] == [
            "stopping: open requests finish"
        ]


async def test_d1_a_server_with_workers_hands_back_steps_when_all_its_processes_get_the_signal_too(
    tmp_path: Path,
) -> None:
    """As a service manager sends it."""
    store = sqlite_file(tmp_path)
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            arguments = ("--processes", "2", "--port", "0", "--queue", "default=1", "--grace", "0.5")
            supervisor = workers.start(*arguments, verb="serve")
            for _ in range(2):
                await app.start(Gated)
            await workers.until_traced("start 0", times=2)

            def ended_by_signals() -> bool:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                return supervisor.poll() is not None

            pids = children(supervisor)
            supervisor.send_signal(signal.SIGTERM)
            await until(ended_by_signals, "the supervisor to end")
            assert supervisor.returncode == 0
            await assert_handed_back(store, 2)


def test_d1_processes_that_are_stopped_as_soon_as_they_serve_end_without_an_error(tmp_path: Path) -> None:
    command = [*HARK, "serve", "--processes", "2", "--port", "0", "--db", sqlite_file(tmp_path).url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = [next(line for line in process.stdout if "serving on" in line)]
        process.terminate()
        said += process.stdout.readlines()
    assert process.returncode == 0, said
    assert "error" not in "".join(said).lower()
