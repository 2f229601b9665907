"""Every code block of README and the guides runs in an empty folder, as a reader would run it."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.nats_server import NatsServer

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_CODE = {"faults.md", "glossary.md", "promises.md", "reference.md"}
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in WITHOUT_CODE)]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NATS = "localhost:4222"  # a page that mentions it gets a server
EXITS = re.compile(r"# exits with (\d+)$")
SHOP = "from hark import Hark\n\napp = Hark('sqlite:///shop.db')\n"


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text("utf-8"))


def run(folder: Path, *command: str, code: int = 0) -> str:
    bin = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": bin}, check=False
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(folder: Path, code: str) -> None:
    if named := re.match(r"# (\w+\.py)\n", code):  # a file that the reader saves
        (folder / named[1]).write_text(code, "utf-8")
    file = folder / "test_block.py"
    file.write_text(code, "utf-8")
    if "async def test_" in code:
        run(folder, sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", str(file))
    else:
        run(folder, sys.executable, str(file))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run `hark serve` on a free port; yields its address."""
    hark = str(Path(sys.executable).parent / "hark")
    command = [hark, "serve", *options, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[2].rstrip(";")
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(100) == 0


def ask_server(folder: Path, line: str, address: str) -> None:
    """Run a curl line until the response contains the text of its comment: steps run meanwhile. `TOKEN` in a line
    stands for the token that the page has received."""
    token = folder / "token"
    line, _, expected = line.partition("  # ")
    if "TOKEN" in line:
        line = line.replace("TOKEN", token.read_text("utf-8"))
    command = shlex.split(line.replace("localhost:4097", address.removeprefix("http://")))
    end = time.monotonic() + 30
    while True:
        response = run(folder, *command, "-sS", "--fail-with-body")
        if expected in response:
            if found := re.search(r'"token":"([^"]+)"', response):
                token.write_text(found[1], "utf-8")
            return
        assert "-d" not in command, f"{line}: {response}"
        assert time.monotonic() < end, f"{line}: {response}"


def run_workflow(folder: Path, code: str) -> None:
    """Run the commands of a workflow of GitHub Actions. The example has code that the check refuses."""
    jobs: dict[str, Any] = yaml.safe_load(code)["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    elsewhere = ("pip ", "ssh ", "scp ")
    here = [command for command in commands if not command.startswith(elsewhere)]
    assert here
    for command in here:
        run(folder, *shlex.split(command), code=1)


def run_shell(folder: Path, line: str, servers: ExitStack, addresses: list[str]) -> None:
    match shlex.split(line, comments=True):
        case ["hark", "serve", *rest]:
            addresses.append(servers.enter_context(serving(folder, *rest)))
        case ["curl", *_]:
            ask_server(folder, line, addresses[-1])
        case ["pip", "install", "hark" | "hark[all]"] | ["make", "test" | "quick" | "demo" | "bench-engine"]:
            pass  # installed before these tests ran; tests/examples runs the demo
        case ["hark", "worker", *rest]:
            (folder / "shop.py").write_text(SHOP, "utf-8")
            hark = str(Path(sys.executable).parent / "hark")
            worker = subprocess.Popen([hark, "worker", *rest], cwd=folder, stdout=subprocess.PIPE, text=True)
            assert worker.stdout is not None
            assert "working" in worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(100) == 0
        case ["hark", *_]:
            exits = EXITS.search(line)
            run(folder, *shlex.split(line, comments=True), code=int(exits[1]) if exits else 0)
        case _:
            pytest.fail(f"This test does not run such a line: {line}")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    assert page.read_text("utf-8").count("```") == 2 * len(found), "a fence that BLOCK does not recognise"
    addresses: list[str] = []
    with ExitStack() as servers:
        if NATS in page.read_text("utf-8"):
            server = servers.enter_context(NatsServer(tmp_path))
            found = [(language, code.replace(NATS, f"127.0.0.1:{server.port}")) for language, code in found]
        for language, code in found:
            if language == "python":
                run_python(tmp_path, code)
            elif language == "yaml":  # a job file, or one of GitHub Actions, with its name in the first line
                name = code.partition("\n")[0].removeprefix("# ")
                if name.startswith(".github/"):
                    run_workflow(tmp_path, code)
                    continue
                (tmp_path / name).write_text(code, "utf-8")
                run(tmp_path, "hark", "job", "check", name)
            elif language == "xml":  # a BPMN file, with its name in the first line
                name = code.partition("\n")[0].removeprefix("<!-- ").removesuffix(" -->")
                (tmp_path / name).write_text(code, "utf-8")
                run(tmp_path, "hark", "bpmn", "check", name)
            elif language != "text":  # a diagram
                assert language == "sh"
                for line in filter(None, code.splitlines()):
                    run_shell(tmp_path, line, servers, addresses)
