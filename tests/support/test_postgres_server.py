"""The tests' PostgreSQL is a real server, started by the tests, and can be killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.postgres import Postgres, PostgresServer, given_server, wait_until
from tests.support.stores import postgres_schema, run_sql, used_schema


@pytest.fixture(scope="module")
def private() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.mark.skipif(given_server() is not None, reason="HARK_TEST_POSTGRES is the URL of a running server")
async def test_the_shared_server_is_ours_and_syncs_to_disk(postgres: Postgres) -> None:
    connection = await asyncpg.connect(postgres.url)
    try:
        assert await connection.fetchval("SHOW data_directory") == postgres.data_directory
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
        assert await connection.fetchval("SHOW full_page_writes") == "on"
        assert await connection.fetchval("SHOW listen_addresses") == "127.0.0.1"
        assert await connection.fetchval("SHOW unix_socket_directories") == ""
        version = await connection.fetchval("SHOW server_version")
        assert version.startswith("18") or os.environ.get("HARK_TEST_POSTGRES")
    finally:
        await connection.close()


def _crash(server: PostgresServer) -> None:
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        run_sql(server.url, "SELECT 1")
    server.start()


@pytest.mark.parametrize("how", [PostgresServer.restart, _crash], ids=["restart", "crash"])
def test_committed_data_survives(private: PostgresServer, how: Callable[[PostgresServer], object]) -> None:
    url = private.url
    private.psql("CREATE TABLE IF NOT EXISTS kept (n int); INSERT INTO kept VALUES (1)")
    before = private.psql("SELECT count(*) FROM kept")
    how(private)
    assert private.url == url
    assert private.psql("SELECT count(*) FROM kept") == before
    private.assert_ours()


def test_fsync_is_off_only_when_asked_for_and_close_syncs_nothing_and_leaves_nothing() -> None:
    with PostgresServer(fsync=False) as server:
        assert server.psql("SHOW fsync").strip() == "off"
        log = server.log_file.open()
    with log:
        said = log.read()
    assert "immediate shutdown" in said
    assert "shutdown immediate" not in said  # the log message of a shutdown checkpoint
    assert not server.running
    assert not server.data_directory.parent.exists()


def test_a_test_run_that_is_killed_leaves_no_server() -> None:
    script = "from tests.support.postgres import PostgresServer as P; import time; s = P(); s.start(); "
    script += "print(s.data_directory, flush=True); time.sleep(600)"
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    data = Path(run.stdout.readline().strip())
    server = int((data / "postmaster.pid").read_text().split()[0])
    run.kill()
    run.wait()
    wait_until(lambda: not data.parent.exists() and _gone(server), "the server to be gone and its directory removed")


def test_each_test_has_a_schema_of_its_own_and_it_is_dropped(postgres: Postgres) -> None:
    with postgres_schema(postgres.url) as store, postgres_schema(postgres.url) as other:
        schema = store.options["schema"]
        assert schema != other.options["schema"]
        run_sql(store.url, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.t (n int)")
        assert run_sql(store.url, f"SELECT to_regclass('{schema}.t') IS NOT NULL")
    assert not run_sql(store.url, f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")


def test_a_schema_is_used_again_with_empty_tables_unless_a_test_changed_more_than_rows(postgres: Postgres) -> None:
    def told(schema: str, *statements: str) -> Any:
        return run_sql(postgres.url, f"SET search_path = {schema}", *statements)

    with used_schema(postgres.url) as store:
        schema = store.options["schema"]
        miss = (
            "INSERT INTO misses (at, kind, target, name, reason) VALUES (0, 'signal', '', '', 'missing') RETURNING seq"
        )
        assert told(schema, miss) == 1
    for change in (
        "ALTER TABLE misses ADD COLUMN more text",
        "CREATE TABLE other ()",
        "DROP INDEX instances_claim",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "DELETE FROM migrations",
        "UPDATE secrets SET secret = 'known'",
    ):
        with used_schema(postgres.url) as store:
            assert store.options["schema"] == schema
            assert told(schema, miss) == 1
            assert told(schema, "SELECT count(*) FROM misses") == 1
            told(schema, change, "SELECT 1")
        with used_schema(postgres.url) as store:
            assert store.options["schema"] != schema
            schema = store.options["schema"]


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
