"""Fixtures for all tests: one PostgreSQL per run, a fresh store per test.

Under xdist the controller starts the server before its first worker and tells each worker where it is;
in a single process it is started by the first test that asks. Either way one process owns it and stops it.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.postgres import GivenDatabase, Postgres, PostgresServer, assert_data_directory, given_server
from tests.support.stores import Store, postgres_schema, run_sql, sqlite_file

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_SERVER = pytest.StashKey[Postgres]()


def _shared(config: pytest.Config) -> Postgres:
    """Start the run's server unless it runs, in the process that owns it."""
    if _SERVER not in config.stash:
        if given := given_server():
            database = GivenDatabase(given)
            config.add_cleanup(database.drop)
            config.stash[_SERVER] = database.create()
        else:
            server = PostgresServer()
            config.add_cleanup(server.close)
            server.start()
            config.stash[_SERVER] = Postgres(server.url, str(server.data_directory), str(server.log_file))
    return config.stash[_SERVER]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's controller, before a worker starts."""
    node.workerinput["postgres"] = asdict(_shared(node.config))


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Postgres:
    told = getattr(pytestconfig, "workerinput", {}).get("postgres")
    shared = Postgres(**told) if told else _shared(pytestconfig)
    assert_data_directory(run_sql(shared.url, "SHOW data_directory"), shared.data_directory)
    return shared


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    return sqlite_file(tmp_path)


@pytest.fixture
def pg_store(postgres: Postgres) -> Iterator[Store]:
    with postgres_schema(postgres.url) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """The same test on both databases."""
    chosen: Store = request.getfixturevalue({"sqlite": "sqlite_store", "postgres": "pg_store"}[request.param])
    return chosen
