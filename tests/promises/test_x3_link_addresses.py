"""X3: a link starts with an address whenever one is known: configured, of this server, or of another on the store."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hark import FunctionContext, Hark, InvalidInput, workflow
from hark.app import answer_links
from hark.app.door_access import DoorAccess
from tests.promises.support_signals import harness
from tests.support.harness import drained
from tests.support.inspect import query, until
from tests.support.questions import Asker, ask
from tests.support.stores import Store


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARK_SECRET", raising=False)
    monkeypatch.delenv("HARK_BASE_URL", raising=False)


def link(app: Hark) -> str:
    return app._links.url("prom_1x", "nonce", None)


async def record(store: Store, *urls: str) -> None:
    async with Hark(store.url, **store.options) as server:
        for url in urls:
            await DoorAccess(server).record_origin(url)


async def test_x3_the_environment_gives_the_address_unless_the_app_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARK_BASE_URL", "https://ask.example/hark/")
    await record(store, "http://ann.example:4097")
    async with Hark(store.url, **store.options) as app:
        assert link(app).startswith("https://ask.example/hark/a/prom_1x?t=")
    async with Hark(store.url, **store.options, base_url="https://own.example") as app:
        assert link(app).startswith("https://own.example/a/")


async def test_x3_the_address_of_a_server_on_the_same_store_is_used(store: Store) -> None:
    await record(store, "http://ann.example:4097/hark")
    async with harness(store, Asker) as app:
        id = await ask(app, store)
        assert (await app.awakeable(id)).url.startswith(f"http://ann.example:4097/hark/a/{id}?t=")


async def test_x3_the_newest_address_that_other_machines_can_reach_is_used(store: Store) -> None:
    await record(store, "http://127.0.0.1:1", "http://localhost:2")
    async with Hark(store.url, **store.options) as app:
        assert link(app).startswith("http://localhost:2/")
    await record(store, "http://old.example", "http://new.example", "http://[::1]:3")
    async with Hark(store.url, **store.options) as app:
        assert link(app).startswith("http://new.example/")
    await record(store, "http://old.example")
    async with Hark(store.url, **store.options) as app:
        assert link(app).startswith("http://old.example/")


async def test_x3_a_server_that_has_a_base_url_records_that(store: Store) -> None:
    async with Hark(store.url, **store.options, base_url="https://ask.example") as server:
        await DoorAccess(server).record_origin("http://127.0.0.1:4097")
    assert await query(store, "SELECT url FROM origins") == [("https://ask.example",)]


@pytest.fixture
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_links, "_REFRESH", 3600)


@pytest.mark.usefixtures("_no_polls")
async def test_x3_the_first_link_after_the_start_of_a_server_has_its_address(store: Store) -> None:
    async with harness(store, Asker) as app, Hark(store.url, **store.options) as other:
        id = await ask(app, store)
        assert (await app.awakeable(id)).url.startswith("/a/")
        await record(store, "http://ann.example:4097")
        assert (await app.awakeable(id)).url.startswith(f"http://ann.example:4097/a/{id}?t=")
        assert [question.url[:24] for question in await other.awakeables()] == ["http://ann.example:4097/"]


@pytest.mark.usefixtures("_no_polls")
async def test_x3_code_that_runs_finds_the_address_of_a_server_that_starts_or_moves(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        assert link(app).startswith("/a/")
        for address in ("http://ann.example:4097", "https://ann.example"):
            await record(store, address)

            async def found(address: str = address) -> bool:
                return link(app).startswith(f"{address}/a/")

            await until(found, "the address of the server")


async def test_x3_an_address_that_was_recorded_while_the_app_opened_is_found(store: Store) -> None:
    app = Hark(store.url, **store.options)
    read = app._links.read

    async def read_before_the_server(opened: Any) -> None:
        await read(opened)
        app._links.read = read  # type: ignore[method-assign]
        await record(store, "http://ann.example:4097")

    app._links.read = read_before_the_server  # type: ignore[assignment]
    async with app:

        async def found() -> bool:
            return link(app).startswith("http://ann.example:4097/a/")

        await until(found, "the address of the server")


async def test_x3_only_the_latest_addresses_are_kept(store: Store) -> None:
    await record(store, *(f"http://127.0.0.1:{port}" for port in range(1, 31)))
    kept = await query(store, "SELECT url FROM origins")
    assert len(kept) == 20
    assert ("http://127.0.0.1:30",) in kept


async def test_x3_without_any_address_the_link_is_a_path_and_one_warning_says_what_to_set(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store)
        for _ in range(3):
            assert (await app.awakeable(id)).url.startswith(f"/a/{id}?t=")
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "HARK_BASE_URL" in warning.getMessage()
    assert "t=" not in warning.getMessage()


@workflow
async def ask_twice(ctx: FunctionContext) -> list[Any]:
    return [await (await ctx.awakeable(title=title)) for title in ("First?", "Second?")]


async def test_x3_code_that_answers_by_itself_gets_no_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async with harness(store, ask_twice) as app:
        app.answer("Second?", 2)
        asked = await drained(app, app.start(ask_twice))
        question = await app.wait_for_awakeable(job=asked, timeout=60)
        await drained(app, app.resolve(question.id, 1))
        assert await asked.result() == [1, 2]
        assert [record for record in caplog.records if record.levelno == logging.WARNING] == []
        assert question.url.startswith("/a/")  # now it is read
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
        assert type(question.url) is str


@pytest.mark.parametrize("bad", ["", "ask.example", "ftp://ask.example", "https://", "https://a.example/?x=1", 5])
def test_x3_a_base_url_that_is_not_an_address_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        Hark("sqlite://", base_url=bad)
