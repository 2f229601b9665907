"""`pip install hark` alone runs machines and functions on SQLite; what an extra installs is named when it is missing.

The packages of the extras are hidden from a process of their own: no environment has to be built for it.
"""

import subprocess
import sys
from importlib import metadata

import pytest

from hark.model.extras import import_extra

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""

EMBEDDED = """
import asyncio
from dataclasses import dataclass

from hark import Await, Done, Hark, Machine, step, workflow
from hark.testing import Harness

class Greeter(Machine):
    @step
    async def start(self, ctx):
        return Await("name", then=self.greet)

    @step
    async def greet(self, ctx):
        return Done(f"hello {ctx.awaited[0].payload}")

@dataclass
class Verdict:
    approved: bool

@workflow
async def deploy(ctx, ref: str):
    question = await ctx.awakeable(title="Deploy?", schema=Verdict)
    verdict = await question
    return [ref, verdict.approved]

async def main():
    app = Hark("sqlite://")
    async with app, app.worker():
        greeter = await app.start(Greeter)
        await greeter.signal("name", "you")
        assert await greeter.result(timeout=30) == "hello you"
    async with Harness(deploy) as app:
        app.answer("Deploy?", {"approved": True})
        run = await app.start(deploy, {"ref": "v1"})
        await app.drain()
        assert await run.result() == ["v1", True]

asyncio.run(main())
print("ok")
"""


def top_level(requirement: str) -> str:
    return requirement.partition(">")[0].partition(";")[0].partition("[")[0].strip().replace("-", "_")


def extra(name: str) -> set[str]:
    """The packages of an extra, as pyproject.toml lists them."""
    required = metadata.requires("hark") or []
    return {top_level(one) for one in required if f"extra == '{name}'" in one}


def run(code: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    source = HIDE.format(hidden=set(hidden)) + code
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)


def test_the_extras_are_disjoint_from_what_is_always_installed() -> None:
    always = {top_level(one) for one in metadata.requires("hark") or [] if "extra ==" not in one}
    assert always == {"msgspec", "apsw", "jsonschema_rs", "cronsim", "tzdata"}
    parts = ("postgres", "server", "cli", "otel", "jobs", "nats")
    assert extra("all") == set().union(*map(extra, parts))
    assert extra("all") == {
        "asyncpg", "jinja2", "uvicorn", "httptools", "uvloop", "typer", "rich", "opentelemetry_api", "pyyaml",
        "nats_py",
    }  # fmt: skip


def test_without_any_extra_machines_functions_and_the_testing_kit_run_on_sqlite() -> None:
    done = run(EMBEDDED, *extra("all"), "nats", "nkeys", "click", "pytest", "pydantic", "starlette")
    assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)


@pytest.mark.parametrize(
    ("name", "hidden", "code"),
    [
        ("postgres", "asyncpg", "from hark import Hark; Hark('postgresql://localhost/x')"),
        ("server", "jinja2", "from hark import Hark; Hark('sqlite://').asgi()"),
        ("nats", "nats", "from hark import Hark; Hark('sqlite://', nats='nats://localhost')"),
        ("jobs", "yaml", "from hark import load_job; load_job('name: j\\ntasks: []\\n')"),
        ("server", "uvicorn", "import asyncio; from hark import Hark; asyncio.run(Hark('sqlite://').serve(port=0))"),
    ],
)
def test_a_missing_extra_is_named(name: str, hidden: str, code: str) -> None:
    done = run(
        f"try:\n    {code}\nexcept Exception as e:\n    print(type(e).__name__, e.extra, e, file=sys.stderr)", hidden
    )
    assert done.stderr.startswith(f"MissingExtra {name} ")
    assert f"{hidden!r}" in done.stderr
    assert f"pip install 'hark[{name}]'" in done.stderr


@pytest.mark.parametrize(
    ("name", "hidden", "words"),
    [
        ("cli", "typer", ["--help"]),
        ("cli", "typer", ["serve"]),
        ("server", "uvicorn", ["serve", "--db", "sqlite://"]),
        ("postgres", "asyncpg", ["events", "--db", "postgresql://localhost/x"]),
    ],
)
def test_the_command_line_names_a_missing_extra_in_one_line_and_exits_2(
    name: str, hidden: str, words: list[str]
) -> None:
    done = run(f"from hark.doors.cli import main\nsys.argv = {['hark', *words]!r}\nmain()", hidden)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("hark: ")
    assert f"pip install 'hark[{name}]'" in line


def test_a_missing_module_of_hark_itself_is_not_taken_for_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"hark\.doors\.http\.misspelt"):
        import_extra("hark.doors.http.misspelt", extra="server", needed_by="app.serve()")


def test_a_missing_extra_is_the_only_traceback() -> None:
    done = run("from hark import Hark\nHark('postgresql://x').open().result()", "asyncpg")
    assert "MissingExtra" in done.stderr
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize(("hidden", "code"), [("typer", 2), ("asyncpg", 0)])
def test_python_m_hark_is_the_command_line(hidden: str, code: int) -> None:
    source = (
        "import runpy\nsys.argv = ['hark', '--help']\nrunpy.run_module('hark', run_name='__main__', alter_sys=True)"
    )
    done = run(source, hidden)
    assert done.returncode == code
    assert done.stdout.startswith("Usage: hark") if code == 0 else "pip install 'hark[cli]'" in done.stderr
