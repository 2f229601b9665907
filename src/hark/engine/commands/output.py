"""Turn the end of a command into its output, or into the text of its failure. Pure."""

from __future__ import annotations

import signal
from typing import Any, Final

from hark.engine.commands.runner import CommandEnd
from hark.model import json
from hark.model.errors import MalformedJson

SUSPEND: Final = 75  # EX_TEMPFAIL: the exit code that says "suspend me"
_QUOTED_LINES: Final = 20  # of stderr, in an error


def output_of(stdout: bytes) -> Any:
    """The output of a command: its stdout without spaces around it, parsed if it is a JSON object or array.

    Bytes that are not UTF-8 and NUL, which no store keeps, become U+FFFD. What looks like JSON and is not is text.
    """
    text = stdout.decode("utf-8", "replace").replace("\0", "\ufffd").strip()
    if text[:1] + text[-1:] in ("{}", "[]"):
        try:
            return json.parse(text, what="output")
        except MalformedJson:
            return text
    return text


def failure_text(end: CommandEnd, what: str, *, max_stdout: int) -> str | None:
    """The reason why a command has failed, with the last lines of its stderr; None if it has not, or asks to be
    suspended.

    Args:
        end: How it ended.
        what: What it is, for the text: "command" or "agent".
        max_stdout: How many bytes of stdout it may write.
    """
    if end.exit < 0:
        reason = f"the {what} was ended by {_signal_name(-end.exit)}"
    elif end.exit not in (0, SUSPEND):
        reason = f"the {what} ended with exit code {end.exit}"
    elif end.exit == 0 and end.stdout_bytes > max_stdout:
        reason = (
            f"the {what} wrote {end.stdout_bytes} bytes to stdout, which is its output, and {max_stdout} are allowed; "
            "write what is not output to stderr or to a file"
        )
    else:
        return None
    return with_stderr(reason, end.stderr_tail)


def with_stderr(reason: str, stderr: str) -> str:
    """This reason, followed by the last lines of stderr."""
    tail = "\n".join(stderr.strip().splitlines()[-_QUOTED_LINES:])
    return f"{reason}: {tail}" if tail else reason


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
