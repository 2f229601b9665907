"""A URL chooses the store; nothing outside store/ tests which database it is."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import hark
from hark import Hark, InvalidInput, MissingExtra
from hark.store import connect, sqlite
from tests.store.wrapped import WRAPPED_PACKAGE
from tests.support.stores import Store, sqlite_file


async def test_the_scheme_of_a_url_chooses_the_store(store: Store) -> None:
    async with store.opened() as made:
        server = await made.server()
        assert server.name.lower().startswith(store.database.name)
        assert server.problem is None


@pytest.mark.parametrize("url", ["", "hark.db", "sqlite:hark.db", "mysql://localhost/x", "SQLITE://", 3, "sqlite://\0"])
def test_a_url_without_a_store_is_refused(url: Any) -> None:
    for ask in (lambda: Hark(url), lambda: connect.exists(url), lambda: connect.dump_migrations(url, "hark")):
        with pytest.raises(InvalidInput, match=r"sqlite:///file\.db"):
            ask()


@pytest.mark.parametrize("schema", ["", "pg_mine", "Mine", "a-b", 'x"; DROP'])
def test_a_schema_postgresql_cannot_have_is_refused_before_anything_is_opened(schema: str) -> None:
    for ask in (
        lambda: connect.factory("postgresql://localhost:1/none", schema=schema, lease=1),
        lambda: connect.dump_migrations("postgresql://localhost:1/none", schema),
    ):
        with pytest.raises(InvalidInput, match="lower-case letters"):
            ask()


def test_only_a_file_can_be_known_not_to_exist_without_a_connection(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert not connect.exists(store.url)
    (tmp_path / "hark.db").touch()
    assert connect.exists(store.url)
    assert connect.exists("sqlite://")
    assert connect.exists("postgresql://localhost:1/none")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_a_missing_driver_says_which_extra_installs_it(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.delitem(sys.modules, "hark.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hark\[postgres\]'") as missing:
        Hark(f"{scheme}://localhost/none")
    assert missing.value.extra == "postgres"
    assert isinstance(missing.value, ImportError)


def test_an_installed_package_adds_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not the URL of a store"):
        Hark("wrapped://")
    monkeypatch.syspath_prepend(WRAPPED_PACKAGE)
    with Hark(f"wrapped:///{tmp_path / 'x.db'}") as app:
        assert app.list().result() == []
        assert type(app._clerk.store).__name__ == "WrappedStore"


def test_sqlite_before_3_51_3_is_reported_as_a_problem() -> None:
    assert sqlite._server("3.51.3", "sqlite://").problem is None
    assert sqlite._server("3.100.0", "sqlite://").problem is None
    for old in ("3.51.2", "3.45.0", "3.9.1"):
        assert "upgrade" in str(sqlite._server(old, "sqlite://").problem)


def test_only_the_store_tests_which_database_it_is() -> None:
    """No `if sqlite` outside store/: texts for people may name a database, code may not compare with its name."""
    package = Path(hark.__file__).parent
    found = []
    for file in package.rglob("*.py"):
        if file.is_relative_to(package / "store"):
            continue
        text = file.read_text("utf-8")
        assert not re.search(r"hark\.store\.(sqlite|postgres)|import (apsw|asyncpg)", text), file
        for node in ast.walk(ast.parse(text)):
            is_test = isinstance(node, ast.Compare | ast.Dict | ast.match_case) or (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
            )
            for part in ast.walk(node) if is_test else ():
                if isinstance(part, ast.Constant) and re.match(r"(sqlite|postgres(ql)?)\b", str(part.value)):
                    found.append(f"{file}:{part.lineno}")
    assert found == []


def test_another_process_reaches_the_same_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "a folder #1"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shared = connect.shared_url("sqlite:///hark.db")
    assert shared is not None
    assert sqlite.path_of(shared) == str(folder / "hark.db")
    assert connect.shared_url(shared) == shared
    assert connect.shared_url("sqlite://") is None
    assert connect.shared_url("postgresql://user:secret@host/db") == "postgresql://user:secret@host/db"
