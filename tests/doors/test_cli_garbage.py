"""X4: every command line, however malformed, ends with a documented exit code and at most one line on stderr."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.support_cli import HARK, run_cli, run_process, store_options
from tests.support.stores import sqlite_file

ARGUMENTS = {
    "start": 1, "result": 1, "signal": 2, "broadcast": 1, "message": 2, "instance show": 1, "instance cancel": 1,
    "instance retry": 1, "instance why": 1, "awakeable show": 1, "awakeable resolve": 1, "awakeable reject": 1,
    "awakeable await": 1, "events": 0, "instance list": 0, "awakeable list": 0,
}  # fmt: skip
OPTIONS = [
    "--payload", "--file", "--dedup-key", "--input", "--key", "--id", "--queue", "--priority", "--delay", "--version",
    "--status", "--definition", "--kind", "--limit", "--after", "--reason", "--error", "--by", "--job", "--timeout",
    "--text", "--json", "--wait", "--schema", "--app", "--server", "--token", "--nonsense", "--", "-",
]  # fmt: skip
NASTY = [
    "", " ", "\0", "\x1b[2J", "\ud800", "\N{SNOWMAN}", "x" * 300, "-1", "1e999", "NaN", "9" * 400, "{", '{"a":1,"a":2}',
    "[" * 5000, "../../etc/passwd", "/", "--", "-", "%", "'; DROP TABLE instances; --", "\r\n", "a:b", "0", "💥" * 64,
]  # fmt: skip


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("garbage")
    flags = store_options(sqlite_file(folder))
    assert run_cli("migrate", *flags).code == 0
    with chdir(folder):
        yield flags


words = st.sampled_from(NASTY) | st.text(max_size=20)
lines = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda command: st.tuples(
        st.just(command.split()),
        st.lists(words, min_size=ARGUMENTS[command], max_size=ARGUMENTS[command] + 1),
        st.lists(st.tuples(st.sampled_from(OPTIONS), words), max_size=3),
    )
)


@pytest.mark.slow
@settings(max_examples=150)
@given(line=lines)
def test_x4_no_command_line_prints_a_traceback(
    where: list[str], line: tuple[list[str], list[str], list[tuple[str, str]]]
) -> None:
    command, arguments, options = line
    typed = [*where, *command, *arguments, *(word for option in options for word in option)]
    if "--wait" in typed:
        typed = [word for word in typed if word != "--wait"]  # it would wait
    result = run_cli(*typed)
    assert result.code in (0, 1, 2, 3, 4, 75), (typed, result)
    assert "Unexpected error" not in result.err, (typed, result)
    assert result.err.count("\n") <= 1, (typed, result)
    assert bool(result.err) == (result.code != 0), (typed, result)


@pytest.mark.parametrize("command", sorted(ARGUMENTS))
def test_x4_every_argument_refuses_invalid_names(where: list[str], command: str) -> None:
    if not ARGUMENTS[command]:
        return
    for bad in ("", "\0", "\ud800", "x" * 300):
        assert run_cli(*where, *command.split(), *([bad] * ARGUMENTS[command])).code == 2


@pytest.mark.parametrize("closed", ["1", "2"])
def test_x4_closed_streams_cause_no_traceback(where: list[str], closed: str) -> None:
    line = f'exec "$0" "$@" {closed}>&-'
    done = subprocess.run(["sh", "-c", line, HARK, "instance", "list", *where], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_x4_arguments_that_are_not_utf8_are_refused(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    assert "--file" in run_cli("signal", "a", "b", "--file", str(tmp_path / "latin"), *where).error_line(2)
    assert "surrogate" in run_process("signal", "a", os.fsdecode(b"\xff"), *where).error_line(2)
    assert run_cli("signal", "a", "b", "--payload", os.fsdecode(b"\xff"), *where).code == 2
