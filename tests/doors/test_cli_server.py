"""D1, D4: `hark serve`, and every command through it: the same output and exit codes as on the store."""

import http.server
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark.doors.cli import remote
from hark.model.decisions import Arm, Finish
from tests.doors.support_cli import HARK, Cli, CliResult, run_cli, store_options
from tests.promises.support_signals import Turns
from tests.support.stores import Store, sqlite_file

SHOP = """
from hark import Await, Done, Hark, Machine, step

app = Hark("sqlite:///shop.db")

class Checkout(Machine):
    @step
    async def start(self, ctx):
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx):
        return Done(ctx.awaited[0].payload)

app.register(Checkout)
"""


_STEPS_FINISH = "running steps finish or are handed back"


@contextmanager
def serving(*args: str, cwd: Path) -> Iterator[str]:
    """Run `hark serve` on a free port and yield its address. SIGTERM stops it, with exit code 0."""
    process = subprocess.Popen(
        [HARK, "serve", "--port", "0", *args], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving on http://127.0.0.1:"), (line, process.communicate())
        yield line.split()[2].rstrip(";")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=100)
        assert (process.returncode, err) == (0, "")
        assert out == f"stopping: {'open requests finish' if '--no-worker' in args else _STEPS_FINISH}\n"
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


class ServerCli(Cli):
    """The command line through a server, and on the store of that server (`on_store`)."""

    def __init__(self, store: Store, url: str) -> None:
        super().__init__(store)
        self.url = url

    def __call__(self, *args: str) -> CliResult:
        return run_cli(*args, "--server", self.url)

    def on_store(self, *args: str) -> CliResult:
        return run_cli(*args, *store_options(self.store))


@pytest.fixture
def server_cli(tmp_path: Path) -> Iterator[ServerCli]:
    store = sqlite_file(tmp_path)
    assert run_cli("migrate", *store_options(store)).code == 0
    with serving("--no-worker", *store_options(store), cwd=tmp_path) as url:
        yield ServerCli(store, url)


def test_d1_a_server_with_a_worker_runs_an_app_of_this_folder(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with serving("--app", "shop:app", cwd=tmp_path) as url:
        id = run_cli("start", "Checkout", "--key", "order:42", "--server", url).out.strip()
        assert run_cli("signal", "order:42", "paid", "--payload", '{"amount": 1}', "--server", url).code == 0
        shown: dict[str, Any] = {}
        while shown.get("status") != "done":
            shown = run_cli("instance", "show", id, "--json", "--server", url).json
        assert shown["result"] == {"amount": 1}


def test_d4_reads_give_the_same_on_a_store_and_through_a_server(
    server_cli: ServerCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        server_cli.park(Arm("signal", f"w{n}", name="go"), id=f"i{n}", key=f"order/{n} ü")
    server_cli.ask(timeout=3600)
    assert server_cli("start", "m", "--id", "tagged", "--tag", "tenant=a", "--tag", "größe=5 €").code == 0
    monkeypatch.setattr(remote, "_PAGE", 2)
    for words in (
        ["instance", "list"], ["instance", "list", "--limit", "3"], ["instance", "list", "--limit", "1001"],
        ["instance", "list", "--status", "failed"],
        ["instance", "list", "--after", "i1"], ["instance", "list", "--tag", "tenant=a"],
        ["instance", "list", "--key-prefix", "order/", "--created-after", "2026-01-31T09:00:00+01:00"],
        ["instance", "list", "--created-before", "2026-01-31T09:00:00Z"],
        ["instance", "show", "order/1 ü"], ["instance", "show", "job-1"],
        ["instance", "why", "order/1 ü"], ["instance", "why", "job-1"],
        ["events"], ["events", "--limit", "3"], ["events", "--job", "order/1 ü"], ["awakeable", "list", "--job", "i0"],
    ):  # fmt: skip
        assert server_cli(*words, "--json").json == server_cli.on_store(*words, "--json").json, words
    for words in (["awakeable", "list", "--status", "PENDING"], ["awakeable", "show", "prom_1abc123"]):
        theirs, ours = server_cli(*words, "--json").json, server_cli.on_store(*words, "--json").json
        for there, here in zip(*([one] if isinstance(one, dict) else one for one in (theirs, ours)), strict=True):
            assert there.pop("url").endswith(here.pop("url"))  # through the server it starts with the server's address
            assert there == here


def test_d4_starts_signals_and_answers_go_through_a_server(server_cli: ServerCli) -> None:
    server_cli.park(Arm("signal", "w1", name="go"), Arm("broadcast", "w2", name="open"), key="order/1 ü")
    server_cli.park(Arm("message", "w3", name="payment", key="order-42"), id="buyer")
    server_cli.ask("prom_1a", of="one")
    server_cli.ask("prom_1b", of="two")
    assert server_cli("message", "payment", "order-42", "--payload", '{"amount": 1}').out == "buyer\n"
    server_cli("message", "payment", "order-42").error_line(3)
    assert server_cli("message", "payment", "order-42", "--ttl", "60", "--dedup-key", "a").out == "kept\n"
    assert server_cli.on_store("message", "payment", "order-42", "--dedup-key", "a").out == "kept\n"
    id = server_cli("start", "m", "--id", "new", "--delay", "60", "--input", "[1]").out.strip()
    assert server_cli.on_store("instance", "show", id, "--json").json["state"] == [1]
    assert server_cli("broadcast", "open", "--payload", "x").out == "1\n"
    assert server_cli("signal", "order/1 ü", "go", "--dedup-key", "schlüssel %20").out == "stored\n"
    assert server_cli.on_store("signal", "order/1 ü", "go", "--dedup-key", "schlüssel %20").out == "duplicate\n"
    assert server_cli("awakeable", "claim", "prom_1a", "--by", "ann").out == "[·] prom_1a claimed by ann\n"
    assert "ann" in server_cli("awakeable", "claim", "prom_1a", "--by", "bob").error_line(4)
    assert server_cli("awakeable", "unclaim", "prom_1a").out == "[·] prom_1a not claimed\n"
    assert server_cli("awakeable", "await", "prom_1a").code == 75
    assert server_cli("awakeable", "resolve", "prom_1a", "--payload", "yes").out == "[✓] prom_1a RESOLVED\n"
    assert server_cli("awakeable", "await", "prom_1a").out == "yes\n"
    assert server_cli("awakeable", "reject", "prom_1b", "--error", "no").out == "[✗] prom_1b REJECTED\n"
    assert server_cli.on_store("awakeable", "show", "prom_1b", "--json").json["error"] == "no"
    assert server_cli("instance", "cancel", id, "--reason", "enough", "--json").json["error"] == "enough"


def test_d4_retry_goes_through_a_server(server_cli: ServerCli) -> None:
    async def fail(turns: Turns) -> None:
        await turns.start("m", "broken")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    server_cli.run_turns(fail)
    assert server_cli("instance", "retry", "broken").out == "broken is runnable at start.\n"


REFUSED = [
    (("instance", "show", "unknown"), 3),
    (("signal", "unknown", "go"), 3),
    (("awakeable", "show", "prom_1unknown"), 3),
    (("awakeable", "resolve", "prom_1unknown"), 3),
    (("start", "Unknown"), 3),
    (("instance", "cancel", "over"), 4),
    (("instance", "retry", "over"), 4),
    (("start", "m", "--id", "over"), 4),
    (("start", "m", "--id", "not an id"), 2),
    (("start", "m", "--delay", "-1"), 2),
    (("signal", "", "go"), 2),
    (("signal", "x" * 300, "go"), 2),
    (("signal", "over", "go", "--dedup-key", "a\nb"), 2),
    (("awakeable", "resolve", "prom_1x", "--by", "ann"), 2),
    (("instance", "list", "--limit", "0"), 2),
    (("timeout", "check"), 2),
    (("signal", "over", "go", "--payload", "x" * (1 << 21)), 2),
]


def test_d4_exit_codes_are_the_same_through_a_server(server_cli: ServerCli) -> None:
    server_cli.park(Arm("signal", "w", name="go"), id="over")
    server_cli.on_store("instance", "cancel", "over")
    for words, code in REFUSED:
        server_cli(*words).error_line(code)


def test_d4_events_are_followed_through_a_server(server_cli: ServerCli) -> None:
    server_cli.park(Arm("signal", "w", name="go"))
    command = [HARK, "events", "--follow", "--job", "i", "--server", server_cli.url]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "started" in follower.stdout.readline()
    server_cli("signal", "i", "go")
    while '"name":"go"' not in follower.stdout.readline():
        assert follower.poll() is None
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=100)
    assert (follower.returncode, err) == (130, "")


def test_d4_another_kind_of_server_is_reported_as_such(tmp_path: Path) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *args: object) -> None: ...

    other = http.server.HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        result = run_cli("instance", "list", "--server", f"http://127.0.0.1:{other.server_port}").error_line(1)
        assert "Is this a Hark server?" in result
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


def test_d1_a_port_that_is_taken_is_refused(sqlite_store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "Cannot listen on" in run_cli("serve", "--port", port, *store_options(sqlite_store)).error_line(2)
