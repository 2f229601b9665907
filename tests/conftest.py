"""Fixtures for all tests: one PostgreSQL server per run, an empty store per test.

Under xdist the controller starts the server before its first worker and passes its address to each of them; in a
single process the first test that needs the server starts it. Either way one process owns it and stops it.

`pytest --store module:name` runs the tests that take the fixture `store`, and only these, on another database: see
docs/stores.md.
"""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.postgres import GivenDatabase, Postgres, PostgresServer, assert_data_directory, given_server
from tests.support.stores import DATABASES, Database, Store, database_at, run_sql, schema_for, sqlite_file

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_SERVER = pytest.StashKey[Postgres]()
_TESTS = Path(__file__).parent
_MARKED_FOLDERS = ("crash", "browser")  # each test in them has the marker of this name
# Opening a store that does not exist is a part of what these prove, or of how they begin.
WITHOUT_TABLES = ("crash/*", "store/*", "doors/test_cli_*", "doors/test_x3_masked_credentials.py")
_PARAMETRIZED = ("database", "module_database")
_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30  # bytes; a run needs less than half of it


def _is_usable(directory: Path) -> bool:
    if not os.access(directory, os.W_OK) or shutil.disk_usage(directory).free < _ROOM:
        return False
    return not os.statvfs(directory).f_flag & os.ST_NOEXEC  # a test may execute what it wrote


# A commit waits milliseconds for a disk, and most tests commit dozens of times. What they kill is a process, never the
# machine, so nothing that they prove needs a disk. TMPDIR chooses another directory.
if "TMPDIR" not in os.environ and _is_usable(_MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # the processes that tests start inherit it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        metavar="MODULE:NAME",
        help="run the tests that take a store on this tests.support.stores.Database instead of SQLite and PostgreSQL",
    )


@pytest.hookimpl(tryfirst=True)  # the database is the first word of a test's parameters
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    other = metafunc.config.getoption("--store")
    databases = [database_at(other)] if other else list(DATABASES.values())
    for name in _PARAMETRIZED:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, databases, ids=[database.name for database in databases], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by these markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder in _MARKED_FOLDERS:
            if item.path.is_relative_to(_TESTS / folder):
                item.add_marker(folder)
        if any(item.path.match(f"tests/{pattern}") for pattern in WITHOUT_TABLES):
            item.add_marker("no_tables")
    if config.getoption("--store"):
        others = [item for item in items if not {*_PARAMETRIZED} & {*getattr(item, "fixturenames", ())}]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish() -> None:
    """Take the tests and their modules, which live until the end, from the garbage collector: looking through them
    again and again took a third of the processor time."""
    gc.collect()
    gc.freeze()


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
    if not node.config.getoption("--store"):
        node.workerinput["postgres"] = asdict(_shared(node.config))


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Postgres:
    passed = getattr(pytestconfig, "workerinput", {}).get("postgres")
    shared = Postgres(**passed) if passed else _shared(pytestconfig)
    assert_data_directory(run_sql(shared.url, "SHOW data_directory"), shared.data_directory)
    return shared


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    return sqlite_file(tmp_path)


@pytest.fixture
def pg_store(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[Store]:
    with schema_for(request, postgres.url) as store:
        yield store


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """Each of the databases in turn."""
    found: Database = request.param
    return found


@pytest.fixture(scope="module")
def module_database(request: pytest.FixtureRequest) -> Database:
    """As `database`, for tests that share one store per file."""
    found: Database = request.param
    return found


@pytest.fixture
def store(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[Store]:
    """An empty store; the test runs on every database."""
    with database.fresh(request, tmp_path) as store:
        yield store


@pytest.fixture(scope="module")
def module_store(
    request: pytest.FixtureRequest, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store for all tests of a file."""
    with module_database.fresh(request, tmp_path_factory.mktemp("store")) as store:
        yield store
