"""D1, D4: `hark serve`, and every command through it: the same words and codes as straight on the store."""

import http.server
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark.doors.cli import remote
from hark.model.decisions import Arm, Finish
from tests.doors.support_cli import HARK, Desk, Said, call, place
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


@contextmanager
def serving(*args: str, cwd: Path) -> Iterator[str]:
    """A server of our own on a free port; its address. It stops by SIGTERM, and cleanly."""
    process = subprocess.Popen(
        [HARK, "serve", "--port", "0", *args], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving on http://127.0.0.1:"), (line, process.communicate())
        yield line.split()[2].rstrip(";")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


class Both(Desk):
    """The store, and a server on it: called, it goes through the server."""

    def __init__(self, store: Store, url: str) -> None:
        super().__init__(store)
        self.url = url

    def __call__(self, *args: str) -> Said:
        return call(*args, "--server", self.url)

    def straight(self, *args: str) -> Said:
        return call(*args, *place(self.store))


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    store = sqlite_file(tmp_path)
    assert call("migrate", *place(store)).code == 0
    with serving("--no-worker", *place(store), cwd=tmp_path) as url:
        yield Both(store, url)


def test_d1_a_server_with_a_worker_runs_an_app_of_this_folder(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with serving("--app", "shop:app", cwd=tmp_path) as url:
        id = call("start", "Checkout", "--key", "order:42", "--server", url).out.strip()
        assert call("signal", "order:42", "paid", "--payload", '{"amount": 1}', "--server", url).code == 0
        shown: dict[str, Any] = {}
        while shown.get("status") != "done":
            shown = call("instance", "show", id, "--json", "--server", url).json
        assert shown["result"] == {"amount": 1}


def test_d4_looking_is_the_same_both_ways(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        both.parked(Arm("signal", f"w{n}", name="go"), id=f"i{n}", key=f"order/{n} ü")
    both.asked(timeout=3600)
    monkeypatch.setattr(remote, "_PAGE", 2)
    for words in (
        ["instance", "list"], ["instance", "list", "--limit", "3"], ["instance", "list", "--status", "failed"],
        ["instance", "list", "--after", "i1"], ["instance", "show", "order/1 ü"], ["instance", "show", "job-1"],
        ["instance", "why", "order/1 ü"], ["instance", "why", "job-1"],
        ["events"], ["events", "--limit", "3"], ["events", "--job", "order/1 ü"], ["awakeable", "list", "--job", "i0"],
    ):  # fmt: skip
        assert both(*words, "--json").json == both.straight(*words, "--json").json, words
    for words in (["awakeable", "list", "--status", "PENDING"], ["awakeable", "show", "prom_1abc123"]):
        theirs, ours = both(*words, "--json").json, both.straight(*words, "--json").json
        for there, here in zip(*([one] if isinstance(one, dict) else one for one in (theirs, ours)), strict=True):
            assert there.pop("url").endswith(here.pop("url"))  # there it starts with the server's own address
            assert there == here


def test_d4_telling_goes_through(both: Both) -> None:
    both.parked(Arm("signal", "w1", name="go"), Arm("broadcast", "w2", name="open"), key="order/1 ü")
    both.parked(Arm("message", "w3", name="payment", key="order-42"), id="buyer")
    both.asked("prom_1a", of="one")
    both.asked("prom_1b", of="two")
    assert both("message", "payment", "order-42", "--payload", '{"amount": 1}').out == "buyer\n"
    both("message", "payment", "order-42").line(3)
    id = both("start", "m", "--id", "new", "--delay", "60", "--input", "[1]").out.strip()
    assert both.straight("instance", "show", id, "--json").json["state"] == [1]
    assert both("broadcast", "open", "--payload", "x").out == "1\n"
    assert both("signal", "order/1 ü", "go", "--dedup-key", "schlüssel %20").out == "stored\n"
    assert both.straight("signal", "order/1 ü", "go", "--dedup-key", "schlüssel %20").out == "duplicate\n"
    assert both("awakeable", "await", "prom_1a").code == 75
    assert both("awakeable", "resolve", "prom_1a", "--payload", "yes").out == "[✓] prom_1a RESOLVED\n"
    assert both("awakeable", "await", "prom_1a").out == "yes\n"
    assert both("awakeable", "reject", "prom_1b", "--error", "no").out == "[✗] prom_1b REJECTED\n"
    assert both.straight("awakeable", "show", "prom_1b", "--json").json["error"] == "no"
    assert both("instance", "cancel", id, "--reason", "enough", "--json").json["error"] == "enough"


def test_d4_steering_goes_through(both: Both) -> None:
    async def fail(turns: Turns) -> None:
        await turns.start("m", "broken")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    both.do(fail)
    assert both("instance", "retry", "broken").out == "broken is runnable at start.\n"


REFUSED = [
    (("instance", "show", "nobody"), 3),
    (("signal", "nobody", "go"), 3),
    (("awakeable", "show", "prom_1nobody"), 3),
    (("awakeable", "resolve", "prom_1nobody"), 3),
    (("start", "Nobody"), 3),
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


def test_d4_codes_do_not_depend_on_the_way(both: Both) -> None:
    both.parked(Arm("signal", "w", name="go"), id="over")
    both.straight("instance", "cancel", "over")
    for words, code in REFUSED:
        both(*words).line(code)


def test_d4_following_through_a_server(both: Both) -> None:
    both.parked(Arm("signal", "w", name="go"))
    command = [HARK, "events", "--follow", "--job", "i", "--server", both.url]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "started" in follower.stdout.readline()
    both("signal", "i", "go")
    while '"name":"go"' not in follower.stdout.readline():
        assert follower.poll() is None
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert (follower.returncode, err) == (130, "")


def test_d4_what_is_no_hark_server_is_said_to_be_none(tmp_path: Path) -> None:
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
        said = call("instance", "list", "--server", f"http://127.0.0.1:{other.server_port}").line(1)
        assert "Is this a Hark server?" in said
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


def test_d1_a_port_that_is_taken_is_refused(both: Both) -> None:
    port = both.url.rpartition(":")[2]
    assert "Cannot listen on" in call("serve", "--port", port, *place(both.store)).line(2)
