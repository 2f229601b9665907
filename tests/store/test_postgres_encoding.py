"""A database that cannot store every text is refused at the start (X11)."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from hark import Hark, StoreUnavailable
from hark.store.protocol import Access
from tests.doors.support_cli import run_cli
from tests.support.postgres import Postgres
from tests.support.stores import Store, run_sql

NAME = "hark_encoding_test"


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def foreign(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[Store]:
    version = int(run_sql(postgres.url, "SELECT current_setting('server_version_num')::int"))
    provider = "LOCALE_PROVIDER libc" if version >= 150000 else ""
    run_sql(
        postgres.url,
        f"CREATE DATABASE {NAME} ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C' {provider} TEMPLATE template0",
    )
    yield Store("postgres", urlsplit(postgres.url)._replace(path=f"/{NAME}").geturl())
    run_sql(postgres.url, f"DROP DATABASE {NAME} WITH (FORCE)")


def test_x11_a_database_that_is_not_utf8_is_refused_with_the_sql_of_one_that_is(
    foreign: Store, postgres: Postgres
) -> None:
    with pytest.raises(StoreUnavailable, match=f"'{NAME}' has the encoding") as refused, Hark(foreign.url):
        pass
    assert run_sql(foreign.url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'hark'") == 0
    advice = re.search("CREATE DATABASE .*?;", str(refused.value))
    assert advice is not None
    name = f"{NAME}_new"
    run_sql(postgres.url, advice[0].replace("DATABASE hark ", f"DATABASE {name} "))
    try:
        with Hark(urlsplit(postgres.url)._replace(path=f"/{name}").geturl()) as app:
            assert app.list().result() == []
    finally:
        run_sql(postgres.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("access", ["write", "read"])
async def test_x11_a_program_that_does_not_migrate_is_told_too(foreign: Store, access: Access) -> None:
    with pytest.raises(StoreUnavailable, match="CREATE DATABASE hark"):
        await foreign.make().open(access)


def test_x11_doctor_says_what_is_wrong_with_the_encoding(foreign: Store) -> None:
    result = run_cli("doctor", "--db", foreign.url)
    assert result.code == 1
    assert "CREATE DATABASE hark ENCODING 'UTF8'" in result.out
