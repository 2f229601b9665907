"""D6: installing Hark gives pytest the fixture `hark_app`, whatever runs the coroutines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from hark import Await, Done, Machine, step
from hark.testing import Harness


class Greeter(Machine):
    @step
    async def start(self, ctx):
        return Await("name", then=self.greet, timeout=60)

    @step
    async def greet(self, ctx):
        return Done("no name came" if ctx.timed_out else f"hello {ctx.awaited[0].payload}")


def test_plain(hark_app):
    assert isinstance(hark_app, Harness)
    assert hark_app.list().result() == []
    greeter = hark_app.start(Greeter).result()
    with hark_app.worker():
        greeter.signal("name", "you").result()
        assert greeter.result(timeout=60).result() == "hello you"
"""

AWAITED = """

{mark}
async def test_signalled(hark_app):
    greeter = await hark_app.start(Greeter)
    assert await hark_app.drain() == {{"steps": 1, "await": 1}}
    await greeter.signal("name", "you")
    assert await hark_app.drain() == {{"steps": 1, "done": 1}}
    assert await greeter.result() == "hello you"


{mark}
async def test_it_is_new_for_every_test(hark_app):
    assert await hark_app.list() == []
    greeter = await hark_app.start(Greeter)
    await hark_app.drain()
    await hark_app.advance(60)
    await hark_app.drain()
    assert await greeter.result() == "no name came"
"""


def run(folder: Path, source: str, *options: str, plugins: tuple[str, ...] | None = None) -> str:
    """Run pytest with these plugins, or with all that are installed, which takes seconds."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = os.environ if plugins is None else {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = (*options, *(f"-p{plugin}" for plugin in plugins or ()))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_d6_the_fixture_works_in_both_modes_of_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    source = TESTS + AWAITED.format(mark="@pytest.mark.asyncio")
    assert "3 passed" in run(
        tmp_path, source, "-o", f"asyncio_mode={mode}", plugins=("hark.pytest_plugin", "pytest_asyncio.plugin")
    )


@pytest.mark.slow
def test_d6_the_fixture_works_without_any_plugin_for_coroutines(tmp_path: Path) -> None:
    assert "1 passed" in run(tmp_path, TESTS, plugins=("hark.pytest_plugin",))


@pytest.mark.slow
def test_d6_the_fixture_is_listed_with_what_it_is_for(tmp_path: Path) -> None:
    listed = run(tmp_path, TESTS, "--fixtures", plugins=("hark.pytest_plugin",))
    assert "hark_app" in listed
    assert "Harness" in listed.partition("hark_app")[2][:300]


@pytest.mark.slow
def test_d6_the_plugin_imports_nothing_of_the_engine_until_its_fixture_is_used(tmp_path: Path) -> None:
    """pytest loads every installed plugin: a project that does not use the fixture must not pay for the engine."""
    engine = "{name for name in sys.modules if name.split('.')[0] in ('hark', 'msgspec', 'apsw')}"
    source = f"""
import sys


def test_before():
    assert {engine} == {{"hark", "hark.model", "hark.model.version", "hark.pytest_plugin"}}


def test_with_the_fixture(hark_app):
    assert {{"hark.testing", "hark.app", "apsw"}} <= {engine}
"""
    assert "2 passed" in run(tmp_path, source)
