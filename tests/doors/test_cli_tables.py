"""D4: tables fit the terminal: columns are left out by importance, then cells are cut; a pipe gets everything."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from hark import Await, Context, Done, Hark, Machine, step
from hark.doors.cli.tables import fit, print_table, shown_ids
from hark.model.decisions import Arm
from hark.model.durations import duration
from tests.doors.support_cli import Cli, run_cli, store_options
from tests.doors.test_cli_process import on_a_terminal
from tests.doors.test_cli_server import serving
from tests.support.stores import Store

COLUMNS = ("ID", "DEFINITION", "STATUS", "STEP", "KEY", "WAITS FOR", "STARTED")
ID = "01a1df25-632f-7623-bb27-8822e5df9860"


class CheckoutWithAVeryLongName(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("payment_confirmed", "order_cancelled_by_the_customer", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


def filled(cli: Cli) -> list[str]:
    """Start instances with keys of many kinds, and park them."""
    app = Hark(cli.store.url, **cli.store.options)
    app.register(CheckoutWithAVeryLongName)
    keys = ["order:42", "a-very-long-business-key-" * 6, "注文番号は四十二番です" * 5, "e\u0301te\u0301" * 9, "🛒" * 30]
    with app, app.worker():
        started = [app.start(CheckoutWithAVeryLongName, correlation_key=key).result() for key in keys]
        for one in started:
            one.wait_for("awaiting_signal", timeout=60).result()
        app.create_token(["read", "answer", "operate"], "a person with a long name " * 3).result()
        app.signal(keys[0], "unexpected", {"a": "long payload " * 20}).result()
    return [one.id for one in started]


def test_d4_no_line_is_wider_than_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(cli)
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        for words in ("instance list", "token list", "events", "workers"):
            lines = cli(*words.split()).out.splitlines()
            assert lines
            assert max(map(cell_len, lines)) <= width, words
    header, *_ = cli("instance", "list").out.splitlines()
    assert header.split() == ["ID", "DEFINITION", "STATUS", "STEP", "KEY", "WAITS", "FOR", "STARTED"]


def test_d4_a_narrow_table_keeps_the_id_and_the_status(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(cli)
    monkeypatch.setenv("COLUMNS", "35")
    header, *rows = cli("instance", "list").out.splitlines()
    assert header.split() == ["ID", "STATUS"]
    assert {row.split()[1] for row in rows} == {"awaiting_signal"}


def test_d4_a_short_id_from_a_table_is_accepted_by_commands(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = filled(cli)
    monkeypatch.setenv("COLUMNS", "80")
    shown = [row.split()[0] for row in cli("instance", "list").out.splitlines()[1:]]
    monkeypatch.delenv("COLUMNS")
    assert all(13 <= len(short) < 36 and id.startswith(short) for short, id in zip(shown, reversed(ids), strict=True))
    assert len(set(shown)) == len(ids)
    short, id = shown[-1], ids[0]
    assert cli("instance", "show", short, "--json").json["id"] == id
    assert cli("instance", "why", short, "--json").json["id"] == id
    assert {event["instance_id"] for event in cli("events", "--job", short, "--json").json} == {id}
    assert cli("awakeable", "list", "--job", short, "--json").json == []
    assert cli("signal", short, "unexpected").out == "stored\n"
    assert cli("instance", "cancel", short, "--json").json["id"] == id
    assert "cancelled" in cli("instance", "retry", short).error_line(4)
    with serving("--no-worker", *store_options(cli.store), cwd=Path.cwd()) as url:
        assert run_cli("instance", "show", shown[0], "--server", url, "--json").json["id"] == ids[-1]
        assert run_cli("signal", shown[0], "unexpected", "--server", url).out == "stored\n"


def test_d4_a_short_id_that_means_several_instances_is_refused(cli: Cli) -> None:
    ids = [ID, "01a1df25-632f-7623-bb27-8822e5df9861"]
    for id in ids:
        cli.park(Arm("signal", f"w-{id}", name="go"), id=id)
    said = cli("signal", "01a1df25-632f", "go").error_line(2)
    assert f"for example {ids[0]} and {ids[1]}" in said
    assert cli("signal", ids[0][:-1], "go").code == 2
    assert "no instance" in cli("instance", "show", "01a1df26-632f").error_line(3)
    assert "no instance" in cli("instance", "show", "01a1df2").error_line(3)  # too short to be the beginning of an id
    cli.park(Arm("signal", "w-key", name="go"), id="keyed", key="01a1df25")
    assert cli("instance", "show", "01a1df25", "--json").json["id"] == "keyed"  # a key comes first


def test_d4_a_token_that_may_only_signal_can_signal_by_a_key_that_looks_like_an_id(cli: Cli, tmp_path: Path) -> None:
    cli.park(Arm("signal", "w", name="go"), key="deadbeef")
    token = cli("token", "create", "--scope", "signal").out.strip()
    with serving("--require-token", "--no-worker", *store_options(cli.store), cwd=tmp_path) as url:
        assert run_cli("signal", "deadbeef", "go", "--server", url, "--token", token).out == "woke\n"


def test_d4_ids_are_as_short_as_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    other = "01a1df25-632f-7623-bb27-8822e5df9861"
    assert shown_ids([ID, "request-1"]) == {ID: "01a1df25-632f", "request-1": "request-1"}
    assert shown_ids([ID, other]) == {ID: ID, other: other}
    assert shown_ids([ID], wide=True) == {ID: ID}
    assert shown_ids([]) == {}


def test_d4_a_pipe_and_wide_get_whole_cells_on_one_line_each(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = filled(cli)
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = cli("instance", "list").out
    monkeypatch.setenv("COLUMNS", "40")
    for out in (piped, cli("instance", "list", "--wide").out):
        assert len(out.splitlines()) == 1 + len(ids)
        assert "a-very-long-business-key-" * 6 in out
        assert "注文番号は四十二番です" * 5 in out
        assert "payment_confirmed, order_cancelled_by_the_customer" in out
        assert all(id in out for id in ids)


def test_d4_on_a_terminal_the_width_is_that_of_the_terminal(sqlite_store: Store) -> None:
    cli = Cli(sqlite_store)
    assert cli("migrate").code == 0
    filled(cli)
    clean = on_a_terminal("instance", "list", *store_options(sqlite_store), NO_COLOR="1", columns=70)
    assert max(cell_len(line) for line in clean.splitlines()) <= 70
    assert "a-very-long-business-key-" * 6 not in clean
    wide = on_a_terminal("instance", "list", "--wide", *store_options(sqlite_store), NO_COLOR="1", columns=70)
    assert "a-very-long-business-key-" * 6 in wide


def test_d4_columns_of_a_table_are_aligned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    print_table(("KEY", "STATUS"), [["注文", "done"], ["e\u0301", "failed"], ["x" * 40, "runnable"]], "none")
    lines = capsys.readouterr().out.splitlines()
    places = [
        cell_len(line[: line.index(word)])
        for line, word in zip(lines, ["STATUS", "done", "failed", "runn"], strict=True)
    ]
    assert places == [22] * 4
    assert lines[3] == "x" * 19 + "…  runnable"
    print_table(("KEY",), [], "No rows.")
    assert capsys.readouterr().out == "No rows.\n"


@pytest.mark.parametrize(
    ("limit", "widths"),
    [
        (None, [36, 10, 15, 5, 90, 7, 9]),
        (200, [36, 10, 15, 5, 90, 7, 9]),
        (120, [36, 10, 15, 5, 26, 7, 9]),
        (110, [36, 10, 15, 0, 32, 0, 9]),
        (80, [36, 10, 15, 0, 0, 0, 9]),
        (75, [36, 10, 15, 0, 0, 0, 0]),
        (60, [36, 0, 15, 0, 0, 0, 0]),
        (50, [36, 0, 12, 0, 0, 0, 0]),
        (40, [30, 0, 8, 0, 0, 0, 0]),
        (1, [8, 0, 8, 0, 0, 0, 0]),
    ],
)
def test_d4_the_least_important_columns_go_first(limit: int | None, widths: list[int]) -> None:
    drop = ("STEP", "WAITS FOR", "KEY", "STARTED", "DEFINITION")
    found = fit([36, 10, 15, 5, 90, 7, 9], COLUMNS, drop, limit)
    assert found == widths
    if limit is not None and limit >= 40:
        assert sum(found) + 2 * (len([width for width in found if width]) - 1) <= limit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.4, "0 s"), (0.6, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (60, "1 min"), (89, "1 min"),
        (91, "2 min"), (59.4 * 60, "59 min"), (59.6 * 60, "1 h"), (3600, "1 h"), (23.4 * 3600, "23 h"),
        (23.6 * 3600, "1 d"), (86_399, "1 d"), (86_400, "1 d"), (6.6 * 86_400, "7 d"), (7 * 86_400 - 3, "7 d"),
        (400 * 86_400, "400 d"),
    ],
)  # fmt: skip
def test_d4_a_duration_is_rounded_before_its_unit_is_chosen(seconds: float, text: str) -> None:
    assert duration(seconds) == text
