"""D4: commands that look write nothing, others need a store that exists, and `hark migrate` makes one."""

import asyncio
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from hark import Done, Hark, Machine, step
from hark.doors.cli.options import Options
from hark.model.decisions import Arm
from hark.store import migrate
from tests.doors.support_cli import Cli, CliResult, run_cli, store_options
from tests.support.inspect import everything, query
from tests.support.postgres import Postgres
from tests.support.stores import Store, postgres_schema, run_sql, sqlite_file

LOOKING = [
    "instance list", "instance show i", "instance why i", "result i --timeout 0", "events", "events --job i",
    "awakeable list", "awakeable show prom_1abc123", "awakeable await prom_1abc123", "token list", "workers",
    "doctor",
]  # fmt: skip
WRITING = [
    "signal i go", "broadcast go", "message go i", "instance cancel i", "instance retry i", "start m", "timeout check",
    "awakeable resolve prom_1abc123", "awakeable reject prom_1abc123", "token revoke x", "secret rotate",
]  # fmt: skip


def run_async(work: Any) -> Any:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


def refusal(result: CliResult) -> str:
    """The error of a command that needs a store: one line on stderr, or a check of `doctor`."""
    if result.out.startswith("ok"):
        [check] = [line for line in result.out.splitlines() if line.startswith("error")]
        assert result.code == 1
        return check
    return result.error_line(2)


@pytest.mark.parametrize("words", LOOKING + WRITING)
def test_d4_a_store_that_does_not_exist_is_not_created(store: Store, tmp_path: Path, words: str) -> None:
    said = refusal(Cli(store)(*words.split()))
    assert f"`hark migrate {shlex.join(store_options(store))}`" in said
    assert list(tmp_path.iterdir()) == []
    if store.name == "postgres":
        schemas = f"SELECT count(*) FROM pg_namespace WHERE nspname = '{store.options['schema']}'"
        assert run_sql(store.url, schemas) == 0


def test_d4_the_first_token_creates_the_store(store: Store) -> None:
    cli = Cli(store)
    assert cli("token", "create", "--scope", "read", "--name", "ann").code == 0
    assert [token["name"] for token in cli("token", "list", "--json").json] == ["ann"]


def test_d4_a_token_that_is_refused_creates_no_store(tmp_path: Path) -> None:
    cli = Cli(sqlite_file(tmp_path))
    assert "no scope 'admin'" in cli("token", "create", "--scope", "admin").error_line(2)
    assert "--expires soon" in cli("token", "create", "--scope", "read", "--expires", "soon").error_line(2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [*LOOKING, *WRITING, "token create --scope read"])
def test_d4_an_older_store_is_not_migrated(cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    older = run_async(query(cli.store, "SELECT max(version) FROM migrations"))
    newest = older[0][0] + 1
    monkeypatch.setattr(migrate, "migrations", lambda database: [migrate.Migration(newest, "next", "SELECT 1")])
    said = refusal(cli(*words.split()))
    assert f"has the tables of version {newest - 1}, and this version of Hark needs those of version {newest}" in said
    assert f"`hark migrate {shlex.join(store_options(cli.store))}`" in said
    assert run_async(query(cli.store, "SELECT max(version) FROM migrations")) == older


@pytest.mark.parametrize("words", LOOKING)
def test_d4_looking_writes_nothing(cli: Cli, tmp_path: Path, words: str) -> None:
    cli.ask(of="i")
    before, files = run_async(everything(cli.store)), contents(tmp_path)
    assert cli(*words.split()).code in (0, 1, 75)
    assert run_async(everything(cli.store)) == before
    assert contents(tmp_path) == files


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


class Nap(Machine):
    @step
    async def start(self, ctx: Any) -> Done:
        return Done()


def test_d4_looking_sees_what_a_running_process_has_committed(cli: Cli, tmp_path: Path) -> None:
    app = Hark(cli.store.url, **cli.store.options)
    with app:
        app.register(Nap).result()
        id = app.start(Nap).result().id
        names = sorted(path.name for path in tmp_path.iterdir())
        assert cli("instance", "show", id, "--json").json["status"] == "runnable"
        assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_d4_looking_does_not_record_the_definitions_of_the_app(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "shop_to_look_at.py").write_text(
        "from hark import *\n"
        "app = Hark('sqlite:///own.db')\n"
        "@workflow\n"
        "async def nap(ctx):\n"
        "    return 1\n"
        "app.register(nap)\n"
    )
    assert cli("instance", "list", "--app", "shop_to_look_at:app").code == 0
    assert run_async(query(cli.store, "SELECT name FROM definitions")) == []
    assert cli("start", "nap", "--app", "shop_to_look_at:app").code == 0
    assert run_async(query(cli.store, "SELECT name FROM definitions")) == [("nap",)]


def test_d4_another_sqlite_database_is_left_as_it_is(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "hark.db"))
    db.execute("CREATE TABLE other (a)").fetchall()
    db.close()
    (tmp_path / "empty.db").touch()
    files = contents(tmp_path)
    for words in LOOKING + WRITING:
        assert "has no tables of Hark" in refusal(Cli(sqlite_file(tmp_path))(*words.split()))
        assert "has no tables of Hark" in refusal(run_cli(*words.split(), "--db", f"sqlite:///{tmp_path}/empty.db"))
    assert contents(tmp_path) == files


def test_d4_a_database_in_memory_is_refused_by_commands() -> None:
    for words in (["instance", "list"], ["signal", "a", "b"]):
        assert "other processes cannot see it" in run_cli(*words, "--db", "sqlite://").error_line(2)


# First the commands run on another store: what they import may be in a folder that a reader cannot open.
_AS_A_READER = """
import contextlib, io, os, sys
from hark.doors.cli.main import run
url, other, *lines = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    [run([*line.split(), "--db", other]) for line in ["migrate", *lines]]
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print([run([*line.split(), "--db", url]) for line in lines])
"""


def as_a_reader(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands on a store whose file and folder may only be read; the last line are their exit codes."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        with tempfile.TemporaryDirectory() as other:
            stores = [sqlite_file(folder).url, sqlite_file(Path(other)).url]
            words = [sys.executable, "-c", _AS_A_READER, *stores, *commands]
            return subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        folder.chmod(0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Not pytest's, which is private: a test that runs as root gives up its rights."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_d4_a_read_only_file_in_a_read_only_folder_can_be_looked_at(open_folder: Path) -> None:
    cli = Cli(sqlite_file(open_folder))
    assert cli("migrate").code == 0
    cli.ask(of="i")
    done = as_a_reader(open_folder, *LOOKING)
    codes = {"awakeable await prom_1abc123": 75, "result i --timeout 0": 75, "doctor": 1}
    assert done.stdout.splitlines()[-1:] == [str([codes.get(words, 0) for words in LOOKING])], done
    assert "no worker for 1 live instance" in done.stdout


@pytest.mark.parametrize("kept", [["", "-wal", "-shm"], ["", "-wal"]])
def test_d4_what_a_killed_process_left_in_the_wal_is_not_overlooked(
    open_folder: Path, tmp_path: Path, kept: list[str]
) -> None:
    """A read-only copy of the files of a process that was killed: the commit is shown, or the command fails."""
    app = Hark(sqlite_file(tmp_path).url)
    with app:
        app.register(Nap).result()
        id = app.start(Nap).result().id
        for suffix in kept:
            shutil.copy(tmp_path / f"hark.db{suffix}", open_folder)
    done = as_a_reader(open_folder, f"instance show {id}")
    if "-shm" in kept:
        assert done.stdout.startswith(f"id               {id}\n"), done
    else:
        assert "SQLite cannot open" in done.stderr, done


def test_d4_a_role_that_may_only_read_can_look(pg_store: Store) -> None:
    cli = Cli(pg_store)
    assert cli("migrate").code == 0
    cli.ask(of="i")
    schema, role = pg_store.options["schema"], f"{pg_store.options['schema']}_reader"
    run_sql(pg_store.url, f'CREATE ROLE "{role}" LOGIN', "SELECT 1")
    try:
        reader = Cli(Store("postgres", as_role(pg_store.url, role), pg_store.options))
        assert "Grant this role USAGE on the schema" in reader("instance", "list").error_line(1)
        run_sql(
            pg_store.url,
            f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"',
            f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"',
            "SELECT 1",
        )
        for words in LOOKING:
            result = reader(*words.split())
            assert result.code in (0, 1, 75), result
            assert "no worker for 1 live instance" in result.out or result.code != 1, result
        assert "permission denied" in reader("signal", "i", "go").error_line(1)
    finally:
        run_sql(pg_store.url, f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"', "SELECT 1")


def as_role(url: str, role: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{role}@{rest.rpartition('@')[2]}"


def test_d4_a_started_app_creates_its_own_store_but_not_one_that_was_named(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "shop_of_its_own.py").write_text("from hark import *\napp = Hark('sqlite:///own.db')\n")
    with postgres_schema(postgres.url) as elsewhere:
        for where in (["--db", "sqlite:///tpyo.db"], store_options(elsewhere)):
            said = run_cli("start", "nap", "--app", "shop_of_its_own:app", *where).error_line(2)
            assert f"`hark migrate --db {where[1]} --app shop_of_its_own:app" in said
    assert not list(tmp_path.glob("*.db"))
    monkeypatch.delitem(sys.modules, "shop_of_its_own")
    assert "nap" in run_cli("start", "nap", "--app", "shop_of_its_own:app").error_line(3)
    assert (tmp_path / "own.db").exists()


@pytest.mark.parametrize("words", ["token list", "token create --scope read", "token revoke x", "migrate", "serve"])
def test_d4_a_command_that_works_on_a_store_says_so_when_a_server_is_given(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = " ".join(words.split()[: 2 if words.startswith("token") else 1])
    refused = f"`hark {name}` works on a store, not through a server."
    assert refused in run_cli(*words.split(), "--server", "http://127.0.0.1:4097").error_line(2)
    monkeypatch.setenv("HARK_SERVER", "http://127.0.0.1:4097")
    assert f"{refused} HARK_SERVER is http://127.0.0.1:4097" in run_cli(*words.split()).error_line(2)
    assert list(tmp_path.iterdir()) == []


def test_d4_with_a_store_and_a_server_in_the_environment_the_store_is_used_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARK_SERVER", "http://127.0.0.1:4097")
    monkeypatch.setenv("HARK_DB", f"sqlite:///{tmp_path}/hark.db")
    assert run_cli("migrate").err.endswith("It uses HARK_DB, and ignores HARK_SERVER.\n")
    assert (tmp_path / "hark.db").exists()
    assert run_cli("token", "list", "--db", f"sqlite:///{tmp_path}/hark.db").err == ""


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ({}, "run: hark instance retry i", "run: hark instance retry i"),
        ({"db": "sqlite:///x.db"}, "run: hark instance retry i", "run: hark instance retry i --db sqlite:///x.db"),
        ({"schema": "s"}, "`hark timeout check`.", "`hark timeout check --schema s`."),
        ({"app": "shop:app"}, "`hark worker --app module:app`.", "`hark worker --app shop:app`."),
        ({"server": "http://x"}, "`hark worker --app module:app`.", "`hark worker --app module:app`."),
        ({"server": "http://x", "token": "t"}, "see `hark events`", "see `hark events --server http://x --token …`"),
        ({"db": "postgresql://ann:pass@db/shop"}, "`hark events`", "`hark events --db 'postgresql://ann:***@db/shop'`"),
        ({"db": "sqlite:///x.db"}, "`hark events --db sqlite:///x.db`", "`hark events --db sqlite:///x.db`"),
        ({"db": "sqlite:///x.db"}, "It waits for the signal hark of ann.", "It waits for the signal hark of ann."),
    ],
)
def test_d4_a_command_to_run_next_has_the_options_that_were_given(
    options: dict[str, str], text: str, expected: str
) -> None:
    assert Options(**options).add_to_commands(text) == expected  # type: ignore[arg-type]


def test_d4_the_commands_that_why_and_doctor_print_work_as_they_are(cli: Cli) -> None:
    cli.park(Arm("signal", "w", name="go"), key="order:42")
    id = cli.ask(schema='{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}')
    where = shlex.join(store_options(cli.store))
    waits, asks = cli("instance", "why", "order:42").out, cli("instance", "why", "job-1").out
    commands = [line.strip() for line in (waits + asks).splitlines() if line.strip().startswith("hark ")]
    assert [command.endswith(where) for command in commands] == [True, True]
    assert f"hark awakeable show {id} {where}" in asks
    assert f"`hark awakeable resolve {id} --payload" in cli("awakeable", "await", id).err
    assert f"{where}`, then" in cli("awakeable", "await", id).err
    assert where in next(line for line in cli("doctor").out.splitlines() if "instance why" in line)
    assert f"`hark instance list {where}`" in cli("message", "go", "no-receiver").error_line(3)
    for command in commands:
        assert run_cli(*shlex.split(command)[1:]).code == 0
