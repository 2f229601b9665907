"""D4: `hark` as a process: exit codes, pipes, signals, colours, completion, and how fast it starts."""

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import hark
from hark.model.decisions import Arm
from tests.doors.support_cli import HARK, Cli, run_cli, run_process, store_options
from tests.support.stores import Store, sqlite_file

COMMANDS = [
    "serve", "worker", "start", "result", "signal", "broadcast", "message", "migrate", "init", "demo", "doctor",
    "events", "instance list", "instance show", "instance cancel", "instance retry", "instance why",
    "awakeable resolve", "awakeable reject", "awakeable claim", "awakeable unclaim", "awakeable list",
    "awakeable show", "awakeable create", "awakeable await", "timeout check", "schedule create", "schedule list",
    "schedule pause", "schedule resume", "schedule trigger", "schedule delete", "token create", "token list",
    "token revoke", "secret rotate", "workers", "job check", "job graph", "job schema", "job run", "job status",
    "job list", "job cancel", "job retry", "job logs", "instance variables", "instance diagram", "bpmn deploy",
    "bpmn undeploy", "bpmn list", "bpmn check", "bpmn render", "instance journal", "check", "export",
    "definition list", "definition retire", "definition unretire", "instance migrate", "instance fork",
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
def test_d4_every_command_has_help_with_an_example(words: str) -> None:
    result = run_cli(*words.split(), "--help")
    assert result.code == 0
    assert f"Example:\n    hark {words}" in result.out
    assert "--json" in result.out
    assert run_cli(*words.split(), "-h") == result


def test_d4_every_command_is_tested_here() -> None:
    found = []
    for line in _listed(run_cli("--help").out):
        inner = run_cli(line, "--help").out
        found += [f"{line} {name}" for name in _listed(inner)] if "COMMAND" in inner.splitlines()[0] else [line]
    assert sorted(found) == sorted(COMMANDS)


def _listed(help: str) -> list[str]:
    """The commands in a help text: the names in its sections, without arguments and options."""
    sections = [section.splitlines() for section in help.split("\n\n")]
    rows = [row for title, *rows in sections if title.endswith(":") and title != "Arguments:" for row in rows]
    return [row.split()[0] for row in rows if re.match("  [a-z]", row)]


@pytest.mark.parametrize(("words", "code"), [((), 2), (("instance",), 2), (("--help",), 0)])
def test_d4_without_a_command_the_help_is_printed(words: tuple[str, ...], code: int) -> None:
    result = run_cli(*words)
    assert result.code == code
    assert result.out.startswith("Usage: hark")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fly",), "No such command"),
        (("signal",), "Missing argument"),
        (("signal", "a", "b", "--loud"), "No such option"),
        (("events", "--limit", "many"), "--limit: give a whole number, not 'many'. Try `hark events --help`."),
        (("worker", "--processes", "two"), "--processes: give a whole number from 1 to 256, not 'two'. Try `hark"),
        (("worker", "--processes", "0"), "--processes: give a whole number from 1 to 256, not '0'. Try `hark"),
        (("serve", "--port", "9" * 500), "--port: give a whole number from 0 to 65535, not '999"),
        (("worker", "--grace", "long"), "--grace: give a number, not 'long'. Try `hark worker --help`."),
        (("worker", "--nats"), "Option '--nats' requires an argument. Try `hark worker --help`."),
        (("worker", "--processes"), "Option '--processes' requires an argument. Try `hark worker --help`."),
        (("job", "run", "--id"), "Option '--id' requires an argument. Try `hark job run --help`."),
        (("instance", "--db"), "Option '--db' requires an argument. Try `hark instance --help`."),
        (("awakeable", "await", "x", "--timeout", "-1"), "--timeout"),
        (("worker", "--app", "no_such_module:app"), "no_such_module"),
        (
            ("start", "x", "--app", "os:path"),
            "not a Hark. Give the variable that holds your Hark app, as module:variable.",
        ),
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
def test_d4_a_usage_error_is_one_line_that_helps_and_exit_2(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in run_cli(*words).error_line(2)


def test_d4_a_command_that_reads_does_not_create_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["instance", "list"], ["signal", "a", "b"], ["awakeable", "show", "x"], ["events"]):
        assert "There is no database at sqlite:///hark.db" in run_cli(*words).error_line(2)
    assert list(tmp_path.iterdir()) == []
    assert run_cli("migrate").out == "sqlite:///hark.db is up to date.\n"
    assert run_cli("instance", "list").code == 0


def test_d4_a_store_that_cannot_be_opened_is_one_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be read as a header of one" * 20)
    (tmp_path / "folder.db").mkdir()
    for name, says in (("text.db", "is not a SQLite database"), ("folder.db", "is a folder")):
        assert says in run_cli("instance", "list", "--db", f"sqlite:///{tmp_path}/{name}").error_line(2)
    assert "SQLite cannot open" in run_cli("migrate", "--db", f"sqlite:///{tmp_path}/nowhere/hark.db").error_line(1)
    run_cli("instance", "list", "--db", "postgresql://missing@127.0.0.1:1/none").error_line(1)
    run_cli("instance", "list", "--server", "http://127.0.0.1:1").error_line(1)


def test_d4_a_newer_store_says_upgrade(tmp_path: Path) -> None:
    import apsw

    store = sqlite_file(tmp_path)
    assert run_cli("migrate", *store_options(store)).code == 0
    db = apsw.Connection(str(tmp_path / "hark.db"))
    db.execute("INSERT INTO migrations (version) VALUES (9999)")
    db.close()
    assert "Upgrade Hark" in run_cli("instance", "list", *store_options(store)).error_line(1)


def test_d4_a_process_has_the_same_exit_codes_and_streams(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert run_cli("migrate", *store_options(store)).code == 0
    assert "no instance" in run_process("instance", "show", "x", *store_options(store)).error_line(3)
    assert "No such command" in run_process("fly").error_line(2)
    assert run_process("instance", "list", "--json", *store_options(store)).json == []


def test_d4_characters_that_the_terminal_cannot_show_are_escaped(sqlite_store: Store) -> None:
    cli = Cli(sqlite_store)
    assert cli("migrate").code == 0
    cli.ask()
    result = run_process("awakeable", "list", *store_options(sqlite_store), env={"PYTHONIOENCODING": "ascii"})
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("[\\xb7] prom_1abc123")


def test_d4_a_closed_pipe_is_not_an_error(sqlite_store: Store) -> None:
    cli = Cli(sqlite_store)
    assert cli("migrate").code == 0
    cli.park(*[Arm("signal", f"w{n}", name=f"go-{n}") for n in range(5000)])
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [HARK, "instance", "show", "i", *store_options(sqlite_store)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_d4_a_closed_pipe_does_not_hide_another_exit_code(tmp_path: Path) -> None:
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
def test_d4_ctrl_c_ends_follow_without_an_error(sqlite_store: Store, number: signal.Signals, code: int) -> None:
    cli = Cli(sqlite_store)
    assert cli("migrate").code == 0
    cli.park(Arm("signal", "w", name="go"))
    command = [HARK, "events", "--follow", *store_options(sqlite_store)]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "started" in follower.stdout.readline()
    assert cli("signal", "i", "go").code == 0
    while '"name":"go"' not in follower.stdout.readline():
        assert follower.poll() is None
    follower.send_signal(number)
    _, err = follower.communicate(timeout=100)
    assert (follower.returncode, err) == (code, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_d1_a_worker_runs_an_app_on_the_given_store_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
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
    id = run_cli("start", "Nap", *where).out.strip()
    while run_cli("instance", "show", id, "--json", *where).json["status"] != "done":
        assert worker.poll() is None
    worker.send_signal(number)
    out, err = worker.communicate(timeout=100)
    assert (worker.returncode, out, err) == (0, "stopping: running steps finish or are handed back\n", "")
    assert not (tmp_path / "own.db").exists()


def on_a_terminal(*args: str, columns: int = 80, **env: str) -> str:
    """The output of a command on a terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS")}
    child = subprocess.Popen([HARK, *args], stdout=slave, stderr=slave, env={**clean, "TERM": "xterm-256color", **env})
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # on Linux: the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    assert child.wait(100) == 0
    return seen.decode()


def test_d4_colours_only_on_a_terminal_and_none_with_no_color(sqlite_store: Store) -> None:
    cli = Cli(sqlite_store)
    assert cli("migrate").code == 0
    cli.ask()
    for words in (["instance", "list"], ["awakeable", "list"], ["instance", "show", "job-1"]):
        where = store_options(sqlite_store)
        assert "\x1b[" in on_a_terminal(*words, *where)
        assert "\x1b[" not in on_a_terminal(*words, *where, NO_COLOR="1")
        assert "\x1b[" not in run_cli(*words, *where).out


def test_d4_version_prints_the_version() -> None:
    assert run_cli("--version").out == f"hark {hark.__version__}\n"


def test_d4_help_takes_at_most_three_times_what_typer_alone_takes() -> None:
    def work(*command: str) -> float:
        """Processor seconds, not wall-clock seconds: these do not depend on the load of the machine."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    pairs = [(work(HARK, "--help"), work(sys.executable, "-c", "import typer")) for _ in range(5)]
    ours, alone = (min(each) for each in zip(*pairs, strict=True))
    assert ours < 3 * alone  # it is about twice


def test_d4_help_does_not_load_the_engine() -> None:
    code = "import sys; from hark.doors.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"hark.app", "rich", "asyncio", "msgspec", "apsw", "asyncpg", "uvicorn", "starlette", "pydantic"}
    assert heavy.isdisjoint(done.stderr.split())
