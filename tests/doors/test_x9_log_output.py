"""X9: the log of `hark worker` and `hark serve`, for people and as JSON."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hark.doors.cli.log_output import JsonFormatter, TextFormatter, set_up_log
from hark.model.errors import InvalidInput
from tests.doors.support_cli import HARK, run_cli

SHOP = """
import logging

from hark import Context, Done, Hark, Machine, Retry, Stop, step

app = Hark()


class Shop(Machine):
    @step
    async def start(self, ctx):
        ctx.log.info("looking", extra={"sku": 7})
        return Done({}["sku"])

    def handle(self, error, ctx):
        return Retry(0) if ctx.attempt == 0 else Stop(error)


app.register(Shop)
"""


@pytest.fixture
def loggers() -> Iterator[None]:
    """The loggers as they were before."""
    root, hark = logging.getLogger(), logging.getLogger("hark")
    handlers, levels = list(root.handlers), (root.level, hark.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    hark.setLevel(levels[1])


def record(message: str = "hello", **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("hark", logging.WARNING, "file.py", 1, message, (), None)
    vars(made).update(fields)
    return made


def start(tmp_path: Path, *words: str, **env: str) -> "subprocess.Popen[str]":
    (tmp_path / "shop.py").write_text(SHOP)
    return subprocess.Popen(
        [HARK, "--db", f"sqlite:///{tmp_path}/shop.db", *words, "--app", "shop:app"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env},
    )  # fmt: skip


def fail_one(tmp_path: Path, process: "subprocess.Popen[str]") -> tuple[str, str, str]:
    """Run one instance to its failure, then stop the process. Returns its id, and both streams."""
    assert process.stdout is not None
    first = process.stdout.readline()
    where = ["--db", f"sqlite:///{tmp_path}/shop.db"]
    id = run_cli("start", "Shop", *where).out.strip()
    while run_cli("instance", "show", id, "--json", *where).json["status"] != "failed":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    return id, first + out, err


@pytest.mark.parametrize("words", [("worker",), ("serve", "--port", "0"), ("worker", "--metrics-port", "0")])
def test_x9_every_line_is_json_with_the_fields_of_the_instance(tmp_path: Path, words: tuple[str, ...]) -> None:
    id, out, err = fail_one(tmp_path, start(tmp_path, *words, HARK_LOG="json"))
    said = [json.loads(line) for line in out.splitlines()]
    assert re.match("working|serving", said[0]["message"])
    assert (said[0]["level"], said[0]["instance"]) == ("INFO", None)
    lines = [json.loads(line) for line in err.splitlines()]
    about = [line for line in lines if line["instance"] == id]
    assert [(line["logger"], line["level"], line["step"], line["attempt"]) for line in about] == [
        ("hark.workflow", "INFO", "start", 0),
        ("hark", "WARNING", "start", 0),
        ("hark.workflow", "INFO", "start", 1),
        ("hark", "ERROR", "start", 1),
    ]
    assert {line["definition"] for line in about} == {"Shop"}
    assert (about[0]["message"], about[0]["sku"]) == ("looking", 7)
    assert 'return Done({}["sku"])' in about[1]["traceback"]
    assert about[3]["message"] == f"Shop {id} failed at start: KeyError: 'sku'"


def test_x9_the_log_is_text_for_people_by_default(tmp_path: Path) -> None:
    id, out, err = fail_one(tmp_path, start(tmp_path, "worker"))
    assert out.startswith("working; press Ctrl-C")
    first = err.splitlines()[0]
    assert re.fullmatch(rf"[-\d]+ [:\d]+ INFO    looking \[instance={id} definition=Shop step=start attempt=0\]", first)
    assert f"WARNING Shop {id} at start: attempt 1 failed: KeyError: 'sku'; next try now\nTraceback (most" in err
    assert f"ERROR   Shop {id} failed at start: KeyError: 'sku'\nTraceback (most" in err


def test_x9_a_line_says_which_of_several_processes_it_comes_from(tmp_path: Path) -> None:
    id, out, err = fail_one(tmp_path, start(tmp_path, "worker", "--processes", "2", HARK_LOG="json"))
    assert "process" not in json.loads(out.splitlines()[0])  # the supervisor's
    about = [line for line in map(json.loads, err.splitlines()) if line["instance"] == id]
    assert about
    assert {line["process"] for line in about} <= {1, 2}
    assert TextFormatter(2).format(record("Shop o-1 failed")).endswith("WARNING process 2: Shop o-1 failed")


def test_x9_the_level_can_be_set(tmp_path: Path) -> None:
    id, _, err = fail_one(tmp_path, start(tmp_path, "worker", HARK_LOG="json", HARK_LOG_LEVEL="error"))
    [line] = [json.loads(line) for line in err.splitlines()]
    assert (line["level"], line["instance"]) == ("ERROR", id)


@pytest.mark.parametrize(("name", "value"), [("HARK_LOG", "yaml"), ("HARK_LOG_LEVEL", "loud")])
def test_x9_another_value_is_refused_with_the_choices(
    monkeypatch: pytest.MonkeyPatch, loggers: None, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"{name}='{value}': set it to "):
        set_up_log()


def test_x9_a_configured_root_logger_is_kept_unless_json_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, loggers: None
) -> None:
    root, own = logging.getLogger(), logging.NullHandler()
    root.handlers[:] = [own]
    set_up_log()
    assert root.handlers == [own]
    monkeypatch.setenv("HARK_LOG", "json")
    set_up_log()
    [handler] = root.handlers
    assert isinstance(handler.formatter, JsonFormatter)


def test_x9_json_has_a_traceback_and_survives_odd_values() -> None:
    try:
        raise ValueError("lone \udc80 surrogate")
    except ValueError:
        made = record("nul \0 and \udc80", exc_info=sys.exc_info(), odd=object(), level="not this one")
    line = JsonFormatter().format(made)
    line.encode()
    body = json.loads(line)
    assert "ValueError" in body["traceback"]
    assert body["odd"].startswith("<object")
    assert (body["level"], body["attempt"]) == ("WARNING", None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", body["time"])
    assert "\n" not in line


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_x9_the_token_of_a_link_is_masked(formatter: logging.Formatter) -> None:
    line = formatter.format(record("mailed https://example.org/a/prom_1abc?x=1&t=k.a.7.secret&y=2 to ann"))
    assert "secret" not in line
    assert "/a/prom_1abc?x=1&t=***&y=2 to ann" in line


def test_x9_text_has_the_fields_that_the_message_has_not() -> None:
    fields = {"instance": "o-1", "definition": "Shop", "step": "start", "attempt": 0}
    assert (
        TextFormatter()
        .format(record("hello", **fields))
        .endswith("WARNING hello [instance=o-1 definition=Shop step=start attempt=0]")
    )
    assert TextFormatter().format(record("Shop o-1 failed", **fields)).endswith("WARNING Shop o-1 failed")
    assert TextFormatter().format(record("hello")).endswith("WARNING hello")
