"""D4: `hark` as a process: exit codes, pipes, signals, colours, completion, and how fast it starts."""

import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hark
from hark.model.decisions import Arm
from tests.doors.support_cli import HARK, Desk, call, place, shell
from tests.support.stores import Store, sqlite_file

COMMANDS = [
    "serve", "worker", "start", "signal", "broadcast", "message", "migrate", "init", "demo", "doctor", "events",
    "instance list", "instance show", "instance cancel", "instance retry", "instance why", "awakeable resolve",
    "awakeable reject", "awakeable list", "awakeable show", "awakeable await", "timeout check",
    "token create", "token list", "token revoke",
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
def test_d4_every_command_has_help_with_an_example(words: str) -> None:
    said = call(*words.split(), "--help")
    assert said.code == 0
    assert f"Example:\n    hark {words}" in said.out
    assert "--json" in said.out


def test_d4_every_command_is_tested_here() -> None:
    found = []
    for line in _listed(call("--help").out):
        inner = call(line, "--help").out
        found += [f"{line} {name}" for name in _listed(inner)] if "COMMAND" in inner.splitlines()[0] else [line]
    assert sorted(found) == sorted(COMMANDS)


def _listed(help: str) -> list[str]:
    lines = help.partition("\nCommands:\n")[2].splitlines()
    return [line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")]


@pytest.mark.parametrize(("words", "code"), [((), 2), (("instance",), 2), (("--help",), 0)])
def test_d4_alone_it_prints_its_help(words: tuple[str, ...], code: int) -> None:
    said = call(*words)
    assert said.code == code
    assert said.out.startswith("Usage: hark")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fly",), "No such command"),
        (("signal",), "Missing argument"),
        (("signal", "a", "b", "--loud"), "No such option"),
        (("events", "--limit", "many"), "--limit"),
        (("awakeable", "await", "x", "--timeout", "-1"), "--timeout"),
        (("worker",), "--app"),
        (("worker", "--app", "no_such_module:app"), "no_such_module"),
        (("start", "x", "--app", "os:path"), "not a Hark"),
        (("signal", "a", "b", "--file", "missing.json"), "--file missing.json"),
        (("signal", "a", "b", "--file", "."), "--file ."),
        (("signal", "a", "b", "--file", "x", "--payload", "1"), "not both"),
        (("instance", "list", "--db", "mysql://x"), "is not the URL of a store"),
        (("migrate", "--db", ""), "is not the URL of a store"),
        (("instance", "list", "--server", ""), "http://127.0.0.1:4097"),
        (("instance", "list", "--db", "sqlite:///x.db", "--server", "http://x"), "not both"),
        (("start", "x", "--app", "shop:app", "--server", "http://x"), "not both"),
        (("instance", "list", "--server", "ftp://x"), "http://127.0.0.1:4097"),
        (("instance", "list", "--server", "http://x:port"), "http://127.0.0.1:4097"),
        (("migrate", "--server", "http://x"), "--server"),
        (("migrate", "--db", "postgresql://x", "--schema", "Bad Name"), "schema"),
    ],
)
def test_d4_a_slip_is_one_line_that_helps_and_exit_2(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in call(*words).line(2)


def test_d4_a_database_that_is_not_there_is_not_made_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["instance", "list"], ["signal", "a", "b"], ["awakeable", "show", "x"], ["events"]):
        assert "There is no database at sqlite:///hark.db" in call(*words).line(2)
    assert list(tmp_path.iterdir()) == []
    assert call("migrate").out == "sqlite:///hark.db is up to date.\n"
    assert call("instance", "list").code == 0


def test_d4_stores_that_cannot_be_used_are_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be read as a header of one" * 20)
    (tmp_path / "folder.db").mkdir()
    for name, says in (("text.db", "is not a SQLite database"), ("folder.db", "is a folder")):
        assert says in call("instance", "list", "--db", f"sqlite:///{tmp_path}/{name}").line(2)
    assert "SQLite cannot open" in call("migrate", "--db", f"sqlite:///{tmp_path}/nowhere/hark.db").line(1)
    call("instance", "list", "--db", "postgresql://nobody@127.0.0.1:1/none").line(1)
    call("instance", "list", "--server", "http://127.0.0.1:1").line(1)


def test_d4_a_newer_store_says_upgrade(tmp_path: Path) -> None:
    import apsw

    store = sqlite_file(tmp_path)
    assert call("migrate", *place(store)).code == 0
    db = apsw.Connection(str(tmp_path / "hark.db"))
    db.execute("INSERT INTO migrations (version) VALUES (9999)")
    db.close()
    assert "Upgrade Hark" in call("instance", "list", *place(store)).line(1)


def test_d4_codes_and_streams_are_a_processs_own(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert shell("migrate", *place(store)).code == 0
    assert "no instance" in shell("instance", "show", "x", *place(store)).line(3)
    assert "No such command" in shell("fly").line(2)
    assert shell("instance", "list", "--json", *place(store)).json == []
    bad = shell("signal", os.fsdecode(b"\xff"), "x", *place(store))
    assert "surrogate" in bad.line(2)


def test_d4_what_the_terminal_cannot_write_is_escaped(sqlite_store: Store) -> None:
    services = Desk(sqlite_store)
    assert services("migrate").code == 0
    services.asked()
    said = shell("awakeable", "list", *place(sqlite_store), env={"PYTHONIOENCODING": "ascii"})
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("[\\xb7] prom_1abc123")


def test_d4_a_closed_pipe_is_no_error(sqlite_store: Store) -> None:
    services = Desk(sqlite_store)
    assert services("migrate").code == 0
    services.parked(*[Arm("signal", f"w{n}", name=f"go-{n}") for n in range(5000)])
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [HARK, "instance", "show", "i", *place(sqlite_store)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_d4_a_closed_pipe_is_no_error_for_who_ends_otherwise(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [HARK, "doctor"], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_d4_ctrl_c_ends_a_follower_quietly(sqlite_store: Store, number: signal.Signals, code: int) -> None:
    services = Desk(sqlite_store)
    assert services("migrate").code == 0
    services.parked(Arm("signal", "w", name="go"))
    command = [HARK, "events", "--follow", *place(sqlite_store)]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "started" in follower.stdout.readline()
    assert services("signal", "i", "go").code == 0
    while '"name":"go"' not in follower.stdout.readline():
        assert follower.poll() is None
    follower.send_signal(number)
    _, err = follower.communicate(timeout=30)
    assert (follower.returncode, err) == (code, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_d1_a_worker_runs_an_app_on_the_store_it_is_told_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "shop.py").write_text(
        "from hark import Done, Hark, Machine, step\n"
        "app = Hark('sqlite:///own.db')\n"
        "class Nap(Machine):\n"
        "    @step\n"
        "    async def start(self, ctx):\n"
        "        return Done('rested')\n"
        "app.register(Nap)\n"
    )
    where = ["--db", f"sqlite:///{tmp_path}/other.db"]
    worker = subprocess.Popen(
        [HARK, *where, "worker", "--app", "shop:app"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdout is not None
    assert "working" in worker.stdout.readline()
    id = call("start", "Nap", *where).out.strip()
    while call("instance", "show", id, "--json", *where).json["status"] != "done":
        assert worker.poll() is None
    worker.send_signal(number)
    _, err = worker.communicate(timeout=30)
    assert (worker.returncode, err) == (0, "")
    assert not (tmp_path / "own.db").exists()


def on_a_terminal(*args: str, **env: str) -> str:
    """What a terminal is sent."""
    master, slave = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    child = subprocess.Popen([HARK, *args], stdout=slave, stderr=slave, env={**clean, "TERM": "xterm-256color", **env})
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    assert child.wait(30) == 0
    return seen.decode()


def test_d4_colours_only_on_a_terminal_and_none_with_no_color(sqlite_store: Store) -> None:
    services = Desk(sqlite_store)
    assert services("migrate").code == 0
    services.asked()
    for words in (["instance", "list"], ["awakeable", "list"], ["instance", "show", "job-1"]):
        where = place(sqlite_store)
        assert "\x1b[" in on_a_terminal(*words, *where)
        assert "\x1b[" not in on_a_terminal(*words, *where, NO_COLOR="1")
        assert "\x1b[" not in shell(*words, *where).out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_d4_completion_knows_the_commands(name: str) -> None:
    told = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # else it asks the processes above which shell it is
    said = shell("--show-completion", name, env=told)
    assert said.code == 0
    assert "_HARK_COMPLETE" in said.out
    words = {
        "bash": {"COMP_WORDS": "hark inst", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "hark inst"},
        "fish": {"_TYPER_COMPLETE_ARGS": "hark inst", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[name]
    said = shell(env={"_HARK_COMPLETE": f"complete_{name}", **words})
    assert said.code == 0
    assert "instance" in said.out
    assert "awakeable" not in said.out


def test_d4_completion_is_installed_for_the_shell_of_who_asks(tmp_path: Path) -> None:
    told = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    assert shell("--install-completion", "bash", env=told).code == 0
    assert "hark" in (tmp_path / ".bashrc").read_text()


def test_d4_it_says_its_version() -> None:
    assert call("--version").out == f"hark {hark.__version__}\n"


def test_d4_help_takes_at_most_three_times_what_typer_alone_takes() -> None:
    def work(*command: str) -> float:
        """Seconds of a processor, not of a clock: how busy the machine is says nothing about us."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    pairs = [(work(HARK, "--help"), work(sys.executable, "-c", "import typer")) for _ in range(7)]
    ours, alone = (min(each) for each in zip(*pairs, strict=True))
    assert ours < 3 * alone  # twice is what it takes


def test_d4_help_does_not_load_the_engine() -> None:
    code = "import sys; from hark.doors.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"hark.app", "rich", "asyncio", "msgspec", "apsw", "asyncpg", "uvicorn", "starlette", "pydantic"}
    assert heavy.isdisjoint(done.stderr.split())
