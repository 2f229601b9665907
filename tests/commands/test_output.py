"""The outcome of a command that has ended: its output, or the text of its failure."""

import signal
from typing import Any

import pytest

from hark.engine.commands.output import failure_text, output_of
from hark.engine.commands.runner import CommandEnd


@pytest.mark.parametrize(
    ("stdout", "output"),
    [
        (b"", ""),
        (b" \n hello \n", "hello"),
        (b'{"a": [1, null]}\n', {"a": [1, None]}),
        (b"\n[1, 2]\n", [1, 2]),
        (b"3", "3"),  # only objects and arrays are parsed
        (b'"x"', '"x"'),
        (b"true", "true"),
        (b'{"a": 1} {"b": 2}', '{"a": 1} {"b": 2}'),
        (b"{not json}", "{not json}"),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        (b"[" * 300 + b"]" * 300, "[" * 300 + "]" * 300),
        (b"caf\xc3\xa9 \xff\x00.", "caf\u00e9 \ufffd\ufffd."),
        (b'{"a": "\\u0000"}', '{"a": "\\u0000"}'),
    ],
)
def test_the_output_is_stdout_parsed_if_it_is_an_object_or_an_array(stdout: bytes, output: Any) -> None:
    assert output_of(stdout) == output


def end(exit: int = 0, *, stdout_bytes: int = 0, stderr: str = "") -> CommandEnd:
    return CommandEnd(exit, b"", stdout_bytes, stderr, timed_out=False)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (end(0, stderr="a warning"), None),
        (end(75), None),
        (end(75, stdout_bytes=11), None),
        (end(3), "the command ended with exit code 3"),
        (end(2, stderr="one\ntwo\n"), "the command ended with exit code 2: one\ntwo"),
        (end(-signal.SIGKILL), "the command was ended by SIGKILL"),
        (end(-99), "the command was ended by signal 99"),
        (
            end(0, stdout_bytes=11),
            "the command wrote 11 bytes to stdout, which is its output, and 10 are allowed; write what is not output "
            "to stderr or to a file",
        ),
    ],
)
def test_the_failure_says_how_it_ended_and_quotes_stderr(end: CommandEnd, text: str | None) -> None:
    assert failure_text(end, "command", max_stdout=10) == text


def test_only_the_last_lines_of_stderr_are_quoted() -> None:
    stderr = "\n".join(f"line {n}" for n in range(100))
    text = failure_text(end(1, stderr=stderr), "agent", max_stdout=10)
    assert text == "the agent ended with exit code 1: " + "\n".join(f"line {n}" for n in range(80, 100))
