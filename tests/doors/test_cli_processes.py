"""D1: `--processes N`: what is refused, once and with the exit code of a single process; ports and restart delays."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hark import Hark
from hark.doors.cli.serve_and_worker import _metrics_listeners
from hark.doors.cli.supervisor import child_command, restart_delay
from hark.doors.http.listening import inherited, listen
from hark.doors.http.server import serve
from hark.model.errors import InvalidInput
from tests.doors.support_cli import HARK, run_cli, run_process
from tests.support.stores import Store


@pytest.mark.parametrize("command", ["worker", "serve"])
@pytest.mark.parametrize("number", ["0", "-1", "257", "two", ""])
def test_d1_the_number_of_processes_is_checked(command: str, number: str) -> None:
    assert "--processes" in run_cli(command, "--processes", number).error_line(2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("worker", "--app", "no_such_module:app"), "--app no_such_module:app cannot be loaded"),
        (("worker", "--db", "sqlite://"), "is in the memory of one process"),
        (("worker", "--queue", "many"), "--queue many"),
        (("worker", "--metrics-port", "65535"), "--metrics-port 65535 with --processes 2"),
        (("serve", "--port", "0", "--host", "0.0.0.0"), "Other machines can reach 0.0.0.0"),
        (("serve", "--port", "0", "--max-connections", "0"), "max_connections=0"),
        (("serve", "--host", "192.0.2.1"), "Cannot listen on 192.0.2.1:4097"),
    ],
)
def test_d1_a_wrong_option_or_app_is_one_line_and_exit_2(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    assert says in run_process(*arguments, "--processes", "2", cwd=tmp_path).error_line(2)


def test_d1_a_store_that_cannot_be_opened_is_one_line_and_exit_1(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/nowhere/hark.db"
    assert "SQLite cannot open" in run_process("worker", "--processes", "2", "--db", missing).error_line(1)


def test_d1_a_port_that_is_taken_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert "Cannot listen" in run_process("serve", "--processes", "2", "--port", port).error_line(2)


def test_d1_each_process_serves_its_own_metrics_until_ctrl_c_ends_all(sqlite_store: Store) -> None:
    command = [HARK, "worker", "--processes", "2", "--metrics-port", "0", "--db", sqlite_store.url]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, process_group=0, **streams) as supervisor:
        assert supervisor.stdout is not None
        lines = [supervisor.stdout.readline() for _ in range(3)]
        assert lines.pop().startswith("working in 2 processes;")
        heads, addresses = zip(*(line.strip().rsplit(" ", 1) for line in lines), strict=True)
        assert set(heads) == {"process 1 of 2: metrics on", "process 2 of 2: metrics on"}
        assert len(set(addresses)) == 2
        for address in addresses:
            assert "hark_turns_total" in httpx.get(f"{address}/metrics", timeout=60).text
        os.killpg(supervisor.pid, signal.SIGINT)  # as a terminal does
        out, err = supervisor.communicate(timeout=100)
        stopping = "stopping: running steps finish or are handed back\n"
        assert (supervisor.returncode, out, err) == (0, stopping, "")


def test_d1_the_ports_of_metrics_follow_each_other() -> None:
    for _ in range(100):
        with listen("127.0.0.1", 0) as probe:
            port = probe.getsockname()[1]
        try:
            listeners = _metrics_listeners("127.0.0.1", port, 3)
        except InvalidInput:  # one of the three is taken
            continue
        assert [one.getsockname()[1] for one in listeners if one] == [port, port + 1, port + 2]
        for one in listeners:
            assert one is not None
            one.close()
        return
    pytest.fail("no three free ports in a row")


def test_d1_a_process_that_dies_again_and_again_is_started_later_and_later() -> None:
    delays = [restart_delay(deaths) for deaths in range(1, 12)]
    assert delays == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert restart_delay(10_000) == 30


def test_d1_a_process_is_started_as_its_supervisor_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "bin/hark", "worker", "--processes", "2"])
    monkeypatch.setattr(sys, "argv", ["bin/hark", "worker", "--processes", "2"])
    given = ("worker", "--processes", "2")
    assert child_command(given) == [sys.executable, "-X", "dev", "bin/hark", *given]
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert child_command(given) == [sys.executable, "-m", "hark", *given]


def test_d1_an_inherited_socket_sends_small_responses_immediately_and_is_not_passed_on() -> None:
    with listen("127.0.0.1", 0) as opened, inherited(os.dup(opened.fileno()), "127.0.0.1") as listener:
        os.set_inheritable(opened.fileno(), True)
        assert (listener.proto, listener.get_inheritable()) == (socket.IPPROTO_TCP, False)
        assert listener.getsockname() == opened.getsockname()


@pytest.mark.parametrize("is_supervised", [True, False])
async def test_d1_a_second_signal_does_not_interrupt_the_stop_of_a_process_with_a_supervisor(
    sqlite_store: Store, is_supervised: bool
) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    serving = loop.create_task(
        serve(
            Hark(sqlite_store.url), host="127.0.0.1", port=0, worker=False, queues=None, grace=0.1,
            require_token=False, say=lambda line: ready.set(),
            inherited=listen("127.0.0.1", 0) if is_supervised else None,
        )
    )  # fmt: skip
    await asyncio.wait_for(ready.wait(), 60)
    serving.cancel()
    await asyncio.wait({serving}, timeout=60)
    assert loop.remove_signal_handler(signal.SIGTERM) is is_supervised
    loop.remove_signal_handler(signal.SIGINT)
