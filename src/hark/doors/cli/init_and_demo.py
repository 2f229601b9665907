"""`hark init` and `hark demo`: write a small project that waits for an approval, or run it."""

import shlex
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hark.doors.cli.engine import local_app
from hark.doors.cli.options import Options
from hark.doors.cli.output import colored, print_json
from hark.model.errors import HarkError, InvalidInput

if TYPE_CHECKING:
    from hark.app.handle import Handle
    from hark.model.values import Status

APP = '''"""A workflow that asks for an approval and waits for the answer."""

from dataclasses import dataclass

from hark import Hark, workflow

app = Hark("sqlite:///hark.db")


@dataclass
class Verdict:
    approve: bool
    note: str = ""


@workflow
async def approval(ctx, what: str):
    question = await ctx.awakeable(title=f"{what}?", schema=Verdict, timeout=7 * 86400)
    verdict = await question  # nothing runs while it waits: a crash, a deploy or a week changes nothing
    return f"{what}: {'yes' if verdict.approve else 'no'}. {verdict.note}".strip()


app.register(approval)
'''
TEST = '''"""Tests move the clock by hand, so that no test waits for a week."""

from app import approval

from hark.testing import Harness


async def test_it_waits_for_the_answer():
    async with Harness(approval) as app:
        request = await app.start(approval, "Deploy v1")
        await app.drain()
        [question] = await app.awakeables(status="PENDING")
        await app.resolve(question.id, {"approve": True, "note": "Go."})
        await app.drain()
        assert await request.result() == "Deploy v1: yes. Go."


async def test_it_fails_after_a_week_without_an_answer():
    async with Harness(approval) as app:
        request = await app.start(approval, "Deploy v1")
        await app.drain()
        await app.advance(7 * 86400)
        await app.drain()
        assert (await request.get()).status == "failed"
'''
JOB = """\
# A pipeline that asks before it publishes: hark job run release.yaml
name: release
inputs: {version: v1}
tasks:
  - name: build
    run: echo app-{{ inputs.version }}
  - name: approve
    type: approval
    needs: [build]
    title: Release {{ tasks.build.output }}?
  - name: publish
    needs: [approve]
    run: echo published {{ tasks.build.output }}
"""
FILES = {
    "app.py": APP,
    "release.yaml": JOB,
    "test_app.py": TEST,
    "pytest.ini": "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n",
    ".gitignore": "hark.db*\n",
}
SERVE = "hark serve --app app:app"
QUESTION = "prom_1cmVxdWVzdC0xOjA"  # the id of the first question of request-1
STEPS = (
    "hark start approval --id request-1 --input '\"Deploy v1\"'",
    "hark instance why request-1",
    f'hark awakeable resolve {QUESTION} --payload \'{{"approve": true, "note": "Go."}}\'',
    "hark instance show request-1",
)
JOB_STEPS = (
    "hark job run release.yaml --id release-1 --detach",
    "hark job status release-1",
)
_DEMO_DB = "sqlite:///hark.db"
# To wait for, after each of STEPS.
_DEMO_STATUSES: "tuple[Status | None, ...]" = ("awaiting_signal", None, "done", None)
_TIMEOUT = 60  # seconds, for what takes a moment


def init(
    options: Options,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or an empty folder")] = Path("."),
) -> None:
    """Write a small project into an empty folder.

    Then it prints the commands that run it.

    hark init shop
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        existing = sorted(path.name for path in folder.iterdir())
        if existing:
            some = ", ".join(existing[:3])
            raise InvalidInput(f"{folder} is not empty (it has {some}); nothing was written. Give an empty folder.")
        for name, text in FILES.items():
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written: {error.strerror}. Give a folder that you may write to."
        ) from error
    first = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    if options.json:
        print_json({"folder": str(folder), "files": sorted(FILES), "next": [*first, SERVE, *STEPS, *JOB_STEPS]})
        return
    print(f"Wrote {', '.join(FILES)}. Now run:\n")
    for line in [*first, SERVE]:
        print(f"  {line}")
    print("\nAnd in another terminal, in the same folder:\n")
    for line in STEPS:
        print(f"  {line}")
    print("\nA job from a file, which the worker of `hark serve` runs:\n")
    for line in JOB_STEPS:
        print(f"  {line}")
    print("\nTo run its tests: `pip install pytest pytest-asyncio`, then `pytest`.")
    print("Next, change app.py and restart `hark serve`. `--db postgresql://…` runs it on PostgreSQL.")


def demo(options: Options) -> None:
    """Run the project of `hark init` in a temporary folder.

    It starts, waits, explains why it waits, gets an answer and ends. The folder is removed afterwards.

    hark demo
    """
    from hark.app.handle import Handle
    from hark.doors.cli.main import run

    with tempfile.TemporaryDirectory(prefix="hark-demo-") as folder, chdir(folder):
        Path("hark_demo.py").write_text(APP, "utf-8")
        app = local_app(Options(db=_DEMO_DB, app="hark_demo:app"))
        request: Handle[str] = Handle(app, "request-1")
        with app, app.worker():
            for line, status in zip(STEPS, _DEMO_STATUSES, strict=True):
                print(colored(f"$ {line}", "bold"), flush=True)
                if run([*shlex.split(line)[1:], "--db", _DEMO_DB]):
                    raise HarkError(
                        "The demo failed at this command. Check that the folder for temporary files is writable."
                    )
                print(flush=True)
                if status is not None:
                    _wait_for(request, status)
    print("To write your own project, begin with `hark init`.")


def _wait_for(request: "Handle[str]", status: "Status") -> None:
    try:
        request.wait_for(status, timeout=_TIMEOUT).result()
    except TimeoutError as error:
        raise HarkError(
            f"The demo waited {_TIMEOUT} s for {status} and gave up. Run it again when this machine is less busy."
        ) from error
