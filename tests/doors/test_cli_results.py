"""D4: `hark start --wait` and `hark result` print the result of an instance and nothing else."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hark import Hark, workflow
from hark.doors.cli import results
from hark.doors.cli.output import print_result
from tests.doors.support_cli import Cli, CliResult, run_cli, store_options
from tests.doors.test_cli_server import serving
from tests.support.http import Order
from tests.support.stores import Store

RESULTS = [
    None,
    True,
    0,
    1.5,
    {"total": 5, "by": "Ann"},
    [1, "two", None],
    {},
    [],
    "",
    "three",
    '"quoted"',
    "two\nlines",
]


@workflow
async def echo(ctx: Any, value: Any) -> Any:
    return value


@workflow
async def fails(ctx: Any) -> None:
    raise ValueError("no money")


class Doors:
    """The command line on a store, or through a server on it; a worker runs in this process."""

    def __init__(self, app: Hark, where: list[str]) -> None:
        self.app = app
        self.where = where

    def __call__(self, *args: str) -> CliResult:
        return run_cli(*args, *self.where)


@pytest.fixture(params=["store", "server"])
def doors(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Doors]:
    app = Hark(store.url, **store.options)
    app.register(echo, fails, Order)
    with app, app.worker():
        if request.param == "store":
            yield Doors(app, store_options(store))
        else:
            with serving("--no-worker", *store_options(store), cwd=tmp_path) as url:
                yield Doors(app, ["--server", url])


def test_d4_the_result_is_printed_and_nothing_else(doors: Doors) -> None:
    for value in RESULTS:
        given = json.dumps({"value": value})
        printed = f"{value}\n" if isinstance(value, str) else f"{json.dumps(value, separators=(',', ':'))}\n"
        waited = doors("start", "echo", "--input", given, "--wait")
        assert (waited.code, waited.out, waited.err) == (0, printed, "")
        id = doors("start", "echo", "--input", given).out.strip()
        assert doors("result", id) == waited
        assert (
            doors("result", id, "--json").json
            == doors("start", "echo", "--input", given, "--wait", "--json").json
            == value
        )


def test_d4_a_result_is_waited_for(doors: Doors) -> None:
    doors.app.start("Order", id="o-1", correlation_key="order:1").result()
    paying = threading.Timer(0.3, lambda: doors.app.signal("o-1", "paid", {"amount": 1}).result())
    paying.start()
    result = doors("result", "order:1", "--timeout", "60")
    paying.join()
    assert (result.code, result.out, result.err) == (0, '{"amount":1}\n', "")


def test_d4_the_result_of_a_failed_or_cancelled_instance_is_its_error(doors: Doors) -> None:
    assert "failed: ValueError: no money" in doors("start", "fails", "--wait").error_line(1)
    doors.app.start("fails", id="f-1").result()
    assert "Instance f-1 failed: ValueError: no money" in doors("result", "f-1").error_line(1)
    doors.app.start("Order", id="o-1").result()
    doors.app.cancel("o-1", "ordered twice").result()
    assert doors("result", "o-1", "--json").error_line(1).endswith("Instance o-1 was cancelled: ordered twice")
    doors.app.start("Order", id="o-2").result()
    doors.app.cancel("o-2").result()
    assert doors("result", "o-2").error_line(1).endswith("Instance o-2 was cancelled.")


def test_d4_what_has_not_ended_in_time_is_75_and_continues(doors: Doors) -> None:
    said = doors("start", "Order", "--id", "o-1", "--wait", "--timeout", "0.2").error_line(75)
    assert "Instance o-1 has not ended within 0.2 s; it continues" in said
    assert f"`{shlex.join(['hark', 'result', 'o-1', *doors.where])}`" in said
    for timeout in ("0", "0.05"):
        assert (
            doors("result", "o-1", "--timeout", timeout).error_line(75).startswith("hark: Instance o-1 has not ended")
        )
    doors.app.signal("o-1", "paid", 1).result()
    assert doors("result", "o-1").out == "1\n"
    assert doors("result", "o-1", "--timeout", "0").out == "1\n"


def test_d4_a_result_of_nothing_is_not_found(doors: Doors) -> None:
    doors("result", "nowhere").error_line(3)
    doors("start", "Nothing", "--wait").error_line(3)


@pytest.mark.parametrize("timeout", ["-1", "nan", "inf", "soon"])
def test_d4_a_timeout_that_is_not_a_time_is_refused(cli: Cli, timeout: str) -> None:
    assert "--timeout" in cli("result", "i", "--timeout", timeout).error_line(2)
    assert "--timeout" in cli("start", "m", "--wait", "--timeout", timeout).error_line(2)


def test_d4_a_timeout_without_wait_is_refused_and_starts_nothing(cli: Cli) -> None:
    assert "--timeout is for --wait" in cli("start", "m", "--timeout", "1").error_line(2)
    assert cli("instance", "list", "--json").json == []


def test_d4_a_server_is_asked_again_after_each_long_poll(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_LONG_POLL", 0.05)
    app = Hark(store.url, **store.options)
    app.register(Order)
    with app, app.worker(), serving("--no-worker", *store_options(store), cwd=tmp_path) as url:
        app.start("Order", id="o-1").result()
        paying = threading.Timer(0.3, lambda: app.signal("o-1", "paid", "yes").result())
        paying.start()
        assert run_cli("result", "o-1", "--server", url).out == "yes\n"
        paying.join()


@pytest.mark.parametrize(
    "words", [["result", "o-1"], ["result", "order 1"], ["start", "Order", "--id", "o-2", "--wait"]]
)
def test_d4_ctrl_c_leaves_the_instance_and_says_how_to_go_on(
    doors: Doors, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    doors.app.start("Order", id="o-1", correlation_key="order 1").result()
    monkeypatch.setattr(results, "_look_again", interrupt)
    said = doors(*words).error_line(130)
    id = "o-2" if "--id" in words else words[1]
    assert f"Interrupted: {id} continues without this command" in said
    assert f"`{shlex.join(['hark', 'result', id, *doors.where])}`" in said
    monkeypatch.undo()
    doors.app.signal(id, "paid", "late").result()
    assert doors("result", id).out == "late\n"


def test_d4_on_a_terminal_a_result_cannot_control_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_result("two\nlines \x1b[2J", as_json=False)
    assert capsys.readouterr().out == "two\nlines \\x1b[2J\n"
