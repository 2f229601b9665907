"""X4 on the command line: whatever is typed, the answer is a code we know and at most one line of complaint."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.support_cli import HARK, call, place, shell
from tests.support.stores import sqlite_file

ARGUMENTS = {
    "start": 1, "signal": 2, "broadcast": 1, "message": 2, "instance show": 1, "instance cancel": 1,
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
    flags = place(sqlite_file(folder))
    assert call("migrate", *flags).code == 0
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


@settings(max_examples=150)
@given(line=lines)
def test_x4_no_typed_line_gives_a_traceback(
    where: list[str], line: tuple[list[str], list[str], list[tuple[str, str]]]
) -> None:
    command, arguments, options = line
    typed = [*where, *command, *arguments, *(word for option in options for word in option)]
    if "--wait" in typed:
        typed = [word for word in typed if word != "--wait"]  # it would wait
    said = call(*typed)
    assert said.code in (0, 1, 2, 3, 4, 75), (typed, said)
    assert "Unexpected error" not in said.err, (typed, said)
    assert said.err.count("\n") <= 1, (typed, said)
    assert bool(said.err) == (said.code != 0), (typed, said)


@pytest.mark.parametrize("command", sorted(ARGUMENTS))
def test_x4_every_argument_refuses_what_no_name_can_be(where: list[str], command: str) -> None:
    if not ARGUMENTS[command]:
        return
    for bad in ("", "\0", "\ud800", "x" * 300):
        assert call(*where, *command.split(), *([bad] * ARGUMENTS[command])).code == 2


@pytest.mark.parametrize("closed", ["1", "2"])
def test_x4_closed_streams_are_no_traceback(where: list[str], closed: str) -> None:
    line = f'exec "$0" "$@" {closed}>&-'
    done = subprocess.run(["sh", "-c", line, HARK, "instance", "list", *where], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_x4_bytes_that_are_no_text_arrive_as_a_refusal(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    assert "--file" in shell("signal", "a", "b", "--file", str(tmp_path / "latin"), *where).line(2)
    assert "surrogate" in shell("signal", "a", os.fsdecode(b"\xff"), *where).line(2)
    assert shell("signal", "a", "b", "--payload", os.fsdecode(b"\xff"), *where).code == 2
