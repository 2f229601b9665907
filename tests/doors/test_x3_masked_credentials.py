"""X3: the password in a URL appears in no error, no chained exception, no log and no output."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from hark import Hark, HarkError
from hark.store import connect
from tests.doors.support_cli import run_cli
from tests.support.postgres import Postgres

SECRET = "hunter2"
URLS = [
    "mysql://user:hunter2@127.0.0.1/db",
    "postgresq://user:hunter2@127.0.0.1/db",
    "user:hunter2@127.0.0.1/db",
    "host=127.0.0.1 password=hunter2",
    "sqlite://user:hunter2@127.0.0.1/db",
    "sqlite://user:hunter2@[127.0.0.1/db",
    "sqlite:///x.db?password=hunter2",
    "postgresql://user:hunter2@127.0.0.1:1/db",
    "postgresql://user:hunter2@127.0.0.1:port/db",
    "postgresql://user:hunter2@[127.0.0.1/db",
    "postgresql://user:hunter2\x00@127.0.0.1/db",
    "postgresql://user:a@hunter2@127.0.0.1:1/db",
    "postgresql://user:hunter2/@127.0.0.1:1/db",
    "postgresql://user:hunter2?@127.0.0.1:1/db",
    "postgresql://user:1/hunter2@127.0.0.1:1/db",
    "postgresql://user:hunter2#@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?password=hunter2",
    "postgresql://127.0.0.1:1/db?password=hunter2&sslmode=wrong",
    "postgresql://127.0.0.1:1/db?port=one&password=hunter2",
    "postgresql://user:hunter2@nowhere.invalid/db",
]


def assert_hidden(error: BaseException | None) -> None:
    """The secret is in no text of an exception, nor of those it was raised from or while handling."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        assert SECRET not in f"{error} {error!r} {error.args!r} {vars(error)!r}"
        assert SECRET not in "".join(traceback.format_exception(error))
        error = error.__cause__ or error.__context__


def open_app(url: str) -> None:
    with Hark(url, lease=1):
        pass


@pytest.mark.parametrize(
    "ask", [open_app, connect.exists, lambda url: connect.dump_migrations(url, "hark")], ids=["open", "exists", "dump"]
)
@pytest.mark.parametrize("url", URLS)
def test_x3_no_error_shows_the_password(url: str, ask: Callable[[str], Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    try:
        ask(url)
    except HarkError as error:
        assert_hidden(error)
    else:
        assert ask is not open_app
    assert SECRET not in caplog.text


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "words",
    [("migrate",), ("doctor",), ("doctor", "--json"), ("instance", "list"), ("migrate", "--dump-sql")],
    ids=" ".join,
)
def test_x3_no_command_shows_the_password(words: tuple[str, ...], url: str, caplog: pytest.LogCaptureFixture) -> None:
    done = run_cli(*words, "--db", url)
    assert SECRET not in done.out + done.err + caplog.text


@pytest.mark.parametrize("url", ["http://user:hunter2@127.0.0.1:1", "http://user:hunter2@[::1", "ftp://user:hunter2@x"])
@pytest.mark.parametrize("words", [("doctor",), ("instance", "list")], ids=" ".join)
def test_x3_the_password_of_a_server_is_not_shown(words: tuple[str, ...], url: str) -> None:
    done = run_cli(*words, "--server", url)
    assert done.code
    assert SECRET not in done.out + done.err


def test_x3_what_the_server_refuses_is_reported_without_the_password(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown database, an unknown user, an unknown setting: PostgreSQL says why, and the URL is not in it."""
    host = postgres.url.partition("@")[2].partition("/")[0]
    for url, why in (
        (f"postgresql://hark:hunter2@{host}/no_such_database", "no_such_database"),
        (f"postgresql://no_such_user:hunter2@{host}/postgres", "no_such_user"),
        (f"postgresql://hark:hunter2@{host}/postgres?no_such_setting=hunter2", "no_such_setting"),
    ):
        with pytest.raises(HarkError, match=why) as refused:
            open_app(url)
        assert_hidden(refused.value)
    assert SECRET not in caplog.text


def test_x3_migrate_names_its_store_without_the_password(postgres: Postgres) -> None:
    url = postgres.url.replace("hark@", "hark:hunter2@", 1)
    done = run_cli("migrate", "--db", url, "--schema", "masked")
    assert done.out == f"{url.replace(SECRET, '***')} is up to date.\n"
