"""V2: `hark check` and `hark export --live`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.support_cli import CliResult, run_cli, run_process

_APP = """
from hark import FunctionContext, Hark, workflow

app = Hark("sqlite:///shop.db")

@workflow{version}
async def order(ctx: FunctionContext):
    await ctx.run(print, "{run}", name="{run}")
    await ctx.wait_for_signal("paid")

app.register(order)
"""


_START = """
import asyncio
from shop import app, order

async def main():
    async with app, app.worker():
        await (await app.start(order)).wait_for("awaiting_signal", timeout=30)

asyncio.run(main())
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A project in an empty folder, with an order that waits; its code can be changed."""
    monkeypatch.chdir(tmp_path)

    def write(run: str = "reserve", version: int = 1) -> None:
        text = textwrap.dedent(_APP).format(run=run, version="" if version == 1 else f"(version={version})")
        Path("shop.py").write_text(text)

    write()
    subprocess.run([sys.executable, "-c", textwrap.dedent(_START)], check=True, timeout=60)
    return write


def _hark(*args: str) -> CliResult:
    """In a process of its own: the code of the project changes."""
    return run_process(*args)


def test_v2_hark_check_says_what_would_not_go_on_and_exits_with_1(shop: Callable[..., None]) -> None:
    fits = _hark("check", "--app", "shop:app")
    assert (fits.code, fits.out) == (0, "1 of 1 unfinished instance would go on.\n")

    shop("hold")
    found = _hark("check", "--app", "shop:app")
    assert found.code == 1
    assert "expected   run reserve, entry 0 of the journal" in found.out
    assert "shop.py:" in found.out
    as_json = _hark("check", "--app", "shop:app", "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"][0]["found"] == "run hold"

    assert _hark("export", "--live", "-o", "live.ndjson", "--app", "shop:app").code == 0
    Path("shop.db").unlink()
    there = _hark("check", "--app", "shop:app", "--export", "live.ndjson")
    assert (there.code, there.out) == (1, found.out)
    assert not Path("shop.db").exists()

    shop("hold", version=2)  # as it says, but without the code of version 1
    lacking = _hark("check", "--app", "shop:app", "--export", "live.ndjson")
    assert lacking.code == 1
    assert "Keep version 1 registered" in lacking.out
    other = _hark("check", "--app", "shop:app", "--export", "live.ndjson", "--definition", "other")
    assert (other.code, other.err) == (0, "hark: there is no unfinished instance of other.\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["check"], "--app"),
        (["check", "--app", "nothing:app"], "nothing"),
        (["check", "--app", "shop:app", "--db", "sqlite:///absent.db"], "absent.db"),
        (["check", "--app", "shop:app", "--export", "absent"], "absent"),
        (["check", "--app", "shop:app", "--server", "http://127.0.0.1:1"], "not through a server"),
    ],
)
def test_v2_hark_check_exits_with_2_if_it_cannot_look(
    args: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text("from hark import Hark\napp = Hark('sqlite:///shop.db')\n")
    found = _hark(*args)
    assert found.code == 2, found
    assert text in found.err
    assert "Traceback" not in found.err


def test_v2_hark_export_says_what_it_can_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--live" in run_cli("export", "-o", "x").error_line(2)
