"""D4: `--help` and completion: grouped, whole, plain without a terminal; statuses and definitions are completed."""

import inspect
import io
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from hark import Done, Hark, Machine, step
from hark.doors.cli.main import cli as root
from hark.doors.cli.main import run
from tests.doors.support_cli import run_cli, run_process, store_options
from tests.doors.test_cli_process import COMMANDS, on_a_terminal
from tests.support.stores import Store

STORE_ONLY = [
    "serve", "worker", "migrate", "awakeable create", "timeout check", "token create", "token list", "token revoke",
    "secret rotate", "check", "export",
]  # fmt: skip


def commands() -> dict[str, Any]:
    """Every command and group, by its words."""
    found: dict[str, Any] = {}

    def add(words: str, command: Any) -> None:
        found[words] = command
        for name, inner in getattr(command, "commands", {}).items():
            add(f"{words} {name}".strip(), inner)

    add("", typer.main.get_command(root))
    return found


def test_d4_the_help_of_hark_is_one_screen_grouped_by_task() -> None:
    out = run_cli("-h").out
    titles = re.findall(r"^(\S.*):$", out, re.M)
    assert titles == [
        "Begin", "Run", "Start and signal", "Look and answer", "Deploy", "Operate", "Options",
        "Store, server and output",
    ]  # fmt: skip
    assert len(out.splitlines()) <= 54
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("words", ["", "instance", "awakeable", "job", "token", "timeout"])
def test_d4_a_summary_is_whole(words: str) -> None:
    out = " ".join(run_cli(*words.split(), "--help").out.split())
    assert "..." not in out.replace("[ARGS]...", "")
    for name, command in commands()[words].commands.items():
        summary = " ".join(command.help.partition("\n\n")[0].split())
        assert f"{name} {summary}" in out, name
        assert summary.endswith(".")


@pytest.mark.parametrize("words", COMMANDS)
def test_d4_the_options_of_a_command_come_before_those_of_all_commands(words: str) -> None:
    out = run_cli(*words.split(), "--help").out
    own, _, shared = out.partition("\nStore, server and output:\n")
    server = [] if words in STORE_ONLY else ["--server", "--token"]
    found = [line.split()[0] for line in shared.splitlines() if line.startswith("  --")]
    assert found == ["--db", "--app", "--schema", *server, "--json"]
    assert "-h, --help" in own
    assert not re.search("--(db|server|json) ", own.partition("Options:")[2])


@pytest.mark.parametrize("words", [words for words in STORE_ONLY if words != "timeout check"])  # it asks the server
def test_d4_a_command_that_offers_no_server_refuses_one(words: str) -> None:
    arguments = {
        "token revoke": ["x"], "token create": ["--scope", "read"], "check": ["--app", "shop:app"],
        "export": ["--live", "-o", "live.json"],
    }.get(words, [])  # fmt: skip
    assert "--server" in run_cli(*words.split(), *arguments, "--server", "http://127.0.0.1:1").error_line(2)


def test_d4_a_command_that_refuses_a_server_does_not_offer_one_on_a_terminal_either() -> None:
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(command, "-h")) for command in ("worker", "doctor")]
    assert ["--token" in text for text in texts] == [False, True]


def test_d4_help_on_a_terminal_is_drawn_in_panels_and_plain_elsewhere() -> None:
    drawn = on_a_terminal("instance", "list", "-h")
    assert "\x1b[" in drawn
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert "╭─ Options ─" in drawn
    assert "╭─ Store, server and output ─" in drawn
    assert "<bool>" not in drawn  # a flag takes no value
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", on_a_terminal("instance", "list", "-h", NO_COLOR="1"))
    for plain in (on_a_terminal("instance", "list", "-h", TERM="dumb"), run_process("instance", "list", "-h").out):
        assert plain.startswith("Usage: hark instance list")
        assert "╭" not in plain


def test_d4_no_help_text_is_taken_for_markup_on_a_terminal() -> None:
    for words, command in commands().items():
        texts = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
        assert not [text for text in texts if text and re.search(r"\[[a-z#/@]", text)], words
        assert "\b" not in inspect.cleandoc(command.help).partition("\n\n")[0]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_d4_completion_knows_the_commands(name: str) -> None:
    # Otherwise it detects the shell from its parent processes.
    environment = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = run_process("--show-completion", name, env=environment)
    assert result.code == 0
    assert "_HARK_COMPLETE" in result.out
    words = {
        "bash": {"COMP_WORDS": "hark inst", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "hark inst"},
        "fish": {"_TYPER_COMPLETE_ARGS": "hark inst", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[name]
    result = run_process(env={"_HARK_COMPLETE": f"complete_{name}", **words})
    assert result.code == 0
    assert "instance" in result.out
    assert "awakeable" not in result.out


def test_d4_completion_is_installed_for_the_given_shell(tmp_path: Path) -> None:
    environment = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    assert run_process("--install-completion", "bash", env=environment).code == 0
    assert "hark" in (tmp_path / ".bashrc").read_text()


def completed(*words: str, **environment: str) -> list[str]:
    """What the shell offers for the last word."""
    line = {"COMP_WORDS": " ".join(["hark", *words]), "COMP_CWORD": str(len(words))}
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {"_HARK_COMPLETE": "complete_bash", **line, **environment}),
        redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit, match="0"),
    ):  # fmt: skip
        run([])
    assert err.getvalue() == ""
    return out.getvalue().split()


class Checkout(Machine):
    @step
    async def start(self, ctx: Any) -> Done:
        return Done()


def test_d4_statuses_and_kinds_are_completed() -> None:
    assert completed("instance", "list", "--status", "awaiting") == ["awaiting_signal", "awaiting_children"]
    assert completed("instance", "list", "--kind", "m") == ["machine"]
    assert completed("awakeable", "list", "--status", "PE") == ["PENDING"]
    assert completed("awakeable", "list", "--status", "re") == ["resolved", "rejected"]


def test_d4_definitions_of_the_store_are_completed(store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.register(Checkout)
    with app:
        pass
    where = store_options(store)
    assert completed(*where, "start", "Ch") == ["Checkout"]
    assert completed("start", *where, "Ch") == ["Checkout"]
    assert completed("instance", "list", *where, "--definition", "C") == ["Checkout"]
    assert completed("instance", "list", *where, "--definition", "x") == []
    if store.name == "sqlite":
        assert completed("start", "Ch", HARK_DB=store.url) == ["Checkout"]


def test_d4_a_store_that_cannot_be_read_completes_nothing(tmp_path: Path, sqlite_store: Store) -> None:
    missing = sqlite_store.url
    (tmp_path / "text.db").write_text("this is no database, and long enough to be read as a header of one" * 20)
    for url in (missing, f"sqlite:///{tmp_path}/text.db", "postgresql://missing@127.0.0.1:1/none", "mysql://x"):
        assert completed("start", "--db", url, "Ch") == []
    assert completed("start", "--server", "http://127.0.0.1:1", "Ch") == []
    assert completed("start", "--app", "no_such_module:app", "Ch") == []
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]
