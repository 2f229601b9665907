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
    names = set()

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

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
    source = f"{HIDE}Hidden.names = {set(hidden)!r}\n{code}"
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


# By the package that is hidden, in an order in which none is imported before: its extra, and what needs it.
NEEDED = {
    "asyncpg": ("postgres", "from hark import Hark; Hark('postgresql://localhost/x')"),
    "jinja2": ("server", "from hark import Hark; Hark('sqlite://').asgi()"),
    "nats": ("nats", "from hark import Hark; Hark('sqlite://', nats='nats://localhost')"),
    "yaml": ("jobs", "from hark import load_job; load_job('name: j\\ntasks: []\\n')"),
    "uvicorn": ("server", "import asyncio; from hark import Hark; asyncio.run(Hark('sqlite://').serve(port=0))"),
}
COMMANDS = {
    "typer": ("cli", ["--help"]),
    "uvicorn": ("server", ["serve", "--db", "sqlite://"]),
    "asyncpg": ("postgres", ["events", "--db", "postgresql://localhost/x"]),
}


def test_a_missing_extra_is_named() -> None:
    """All in one process, because a process takes longer than what is tested."""
    code = "".join(
        f"Hidden.names = {{{hidden!r}}}\n"
        f"try:\n    {code}\nexcept Exception as e:\n    print(type(e).__name__, e.extra, e)\n"
        for hidden, (_, code) in NEEDED.items()
    )
    lines = run(code).stdout.splitlines()
    for line, (hidden, (extra, _)) in zip(lines, NEEDED.items(), strict=True):
        assert line.startswith(f"MissingExtra {extra} ")
        assert f"{hidden!r}" in line
        assert f"pip install 'hark[{extra}]'" in line


@pytest.mark.parametrize("hidden", COMMANDS)
def test_the_command_line_names_a_missing_extra_in_one_line_and_exits_2(hidden: str) -> None:
    name, words = COMMANDS[hidden]
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
