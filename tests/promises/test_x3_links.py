"""X3: the link to an awakeable: signed, expiring, with key rotation, and never shown by accident."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from hark import Hark, InvalidInput, NotFound, NotOpen
from hark.app.door_access import DoorAccess
from hark.model.links import LIFE
from hark.model.names import SECOND
from hark.testing import Harness
from tests.promises.support_signals import harness
from tests.support.inspect import everything, query
from tests.support.questions import Asker, ask
from tests.support.stores import Store

DAYS = 86_400


@pytest.fixture(autouse=True)
def _no_secret_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARK_SECRET", raising=False)
    monkeypatch.delenv("HARK_BASE_URL", raising=False)


@asynccontextmanager
async def asked(
    store: Store, options: dict[str, Any] | None = None, **question: Any
) -> AsyncIterator[tuple[Harness, str]]:
    async with harness(store, Asker, **options or {}) as app:
        yield app, await ask(app, store, **question)


def token_of(url: str) -> str:
    return url.partition("?t=")[2]


async def opens(app: Hark, id: str, token: str) -> bool:
    try:
        return (await DoorAccess(app).linked(id, token)).id == id
    except NotFound as error:
        refused = str(error)
    assert refused == "This link does not work: it is incomplete, or no longer valid. Ask for a new one."
    return False


async def test_x3_the_url_of_an_awakeable_opens_it(store: Store) -> None:
    async with asked(store) as (app, id):
        shown = await app.awakeable(id)
        assert shown.url.startswith(f"/a/{id}?t=")
        assert await DoorAccess(app).linked(id, token_of(shown.url)) == shown
        assert (await app.awakeables())[0].url == shown.url
        assert (await app.resolve(id, 1)).url == shown.url


@pytest.mark.parametrize(
    ("base_url", "origin", "start"),
    [
        ("https://ask.example/hark/", "http://127.0.0.1:4097", "https://ask.example/hark/a/"),
        (None, "http://127.0.0.1:4097", "http://127.0.0.1:4097/a/"),
        (None, "", "/a/"),
    ],
)
async def test_x3_it_starts_with_base_url_else_with_the_servers_origin(
    store: Store, base_url: str | None, origin: str, start: str
) -> None:
    async with asked(store, {"base_url": base_url}) as (app, id):
        DoorAccess(app).origin = origin
        assert (await app.awakeable(id)).url.startswith(start)


async def test_fault_66_a_forged_or_foreign_link_opens_nothing_and_says_nothing(store: Store) -> None:
    async with asked(store) as (app, id):
        other = await ask(app, store, "other")
        token = token_of((await app.awakeable(id)).url)
        assert await opens(app, id, token)
        for wrong in ("", "x", token[:-1], token + "x", token.swapcase(), token_of((await app.awakeable(other)).url)):
            assert not await opens(app, id, wrong)
        for elsewhere in (other, "prom_1bm9ib2R5OjA", "", "\0", "x" * 999, "\ud800"):
            assert not await opens(app, elsewhere, token)


async def test_fault_66_a_link_expires_with_its_awakeable(store: Store) -> None:
    async with asked(store, timeout=60) as (app, id):
        token = token_of((await app.awakeable(id)).url)
        app.clock.now += 59 * SECOND
        assert await opens(app, id, token)
        app.clock.now += 1 * SECOND
        assert not await opens(app, id, token)
        await app.sweep()
        assert (await app.awakeable(id)).status == "TIMEOUT"
        assert not await opens(app, id, token)
        [[nonce]] = await query(store, f"SELECT nonce FROM awakeables WHERE id = '{id}'")
        longer = token_of(app._links.url(id, nonce, app.clock.now + 60 * SECOND))  # as a replay would create it
        assert not await opens(app, id, longer)


async def test_x3_a_link_to_an_awakeable_without_timeout_lasts_thirty_days_and_reading_it_gives_a_new_link(
    store: Store,
) -> None:
    async with asked(store) as (app, id):
        first = (await app.awakeable(id)).url
        app.clock.now += 10 * DAYS * SECOND
        assert (await app.awakeable(id)).url == first  # unchanged for a while, so that a replay sees the same link
        app.clock.now += LIFE - 10 * DAYS * SECOND - 1
        assert await opens(app, id, token_of(first))
        second = (await app.awakeable(id)).url
        app.clock.now += 1
        assert not await opens(app, id, token_of(first))
        assert await opens(app, id, token_of(second))


async def test_x3_the_link_of_a_settled_awakeable_still_shows_who_answered(store: Store) -> None:
    async with asked(store) as (app, id):
        token = token_of((await app.awakeable(id)).url)
        await app.resolve(id, 1, by="ann")
        assert (await DoorAccess(app).linked(id, token)).answered_by == "ann"


async def test_x3_the_secret_is_made_once_and_kept_in_the_store(store: Store) -> None:
    """Ten processes may open a fresh store at once: a link of any of them opens in every other."""
    apps = [Hark(store.url, **store.options) for _ in range(10)]
    await asyncio.gather(*(app.__aenter__() for app in apps))
    try:
        links = {app._links.url("prom_1x", "nonce", None) for app in apps}
        assert len(links) == 1
        [[secret]] = await query(store, "SELECT secret FROM secrets")
        assert len(secret) == 64
    finally:
        await asyncio.gather(*(app.__aexit__() for app in apps))
    async with Hark(store.url, **store.options) as again:
        assert again._links.url("prom_1x", "nonce", None) in links


async def test_x3_two_stores_do_not_share_a_secret(sqlite_store: Store, pg_store: Store) -> None:
    links = set()
    for store in (sqlite_store, pg_store):
        async with Hark(store.url, **store.options) as app:
            links.add(app._links.url("prom_1x", "nonce", None))
    assert len(links) == 2


async def test_x3_a_given_secret_wins_over_the_environments_over_the_stores(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def link(**options: Any) -> str:
        async with Hark(store.url, **store.options, **options) as app:
            return app._links.url("prom_1x", "nonce", None)

    kept = await link()
    given = await link(secret="given")
    monkeypatch.setenv("HARK_SECRET", "environment")
    around = await link()
    assert len({kept, given, around}) == 3
    assert await link(secret="given") == given
    monkeypatch.setenv("HARK_SECRET", "")
    assert await link() == kept


async def test_x3_secrets_are_rotated_without_breaking_existing_links(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(store, {"secret": "old"}) as (app, id):
        old = token_of((await app.awakeable(id)).url)
    monkeypatch.setenv("HARK_SECRET", "new,old")
    async with harness(store, Asker) as app:
        new = token_of((await app.awakeable(id)).url)
        assert new != old
        assert await opens(app, id, old)
        assert await opens(app, id, new)
    async with harness(store, Asker, secret="new") as app:
        assert not await opens(app, id, old)
        assert await opens(app, id, new)


async def test_x3_a_link_is_in_no_event_log_error_or_repr(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with asked(store, {"secret": "s3cret"}, schema={"type": "integer"}, assignees=["ann"]) as (app, id):
        shown = await app.awakeable(id)
        token = token_of(shown.url)
        seen = [repr(shown), str(shown), repr(app._links.keys)]
        for attempt in (
            lambda: app.resolve(id, "x"),
            lambda: app.resolve(id, 1, by="eve"),
            lambda: DoorAccess(app).linked(id, token + "x"),
            lambda: DoorAccess(app).linked("prom_1bm9ib2R5OjA", token),
            lambda: app.resolve(id, 1, by="ann", via="link"),
            lambda: app.resolve(id, 1),
        ):
            try:
                seen.append(repr(await attempt()))
            except Exception as error:
                seen.append(repr(error) + str(error))
        seen += [repr(event) for event in await app.events(limit=100)]
        seen.append(repr(await everything(store)))
        seen += [record.getMessage() for record in caplog.records]
        assert not any(token in text or "s3cret" in text for text in seen)


@pytest.mark.parametrize("secret", ["", " , ", 5])
def test_x3_an_invalid_secret_is_refused(secret: Any) -> None:
    with pytest.raises(InvalidInput, match="secret"):
        Hark("sqlite://", secret=secret)


def test_x3_there_are_no_keys_before_the_store_is_open() -> None:
    with pytest.raises(NotOpen):
        DoorAccess(Hark("sqlite://")).sign_texts("x")


async def test_x3_links_work_in_synchronous_code(sqlite_store: Store) -> None:
    def plain() -> str:
        with Hark(sqlite_store.url) as app:
            return app._links.url("prom_1x", "nonce", None)

    link = await asyncio.to_thread(plain)
    async with Hark(sqlite_store.url) as app:
        assert app._links.url("prom_1x", "nonce", None) == link


def test_x3_thirty_days() -> None:
    assert timedelta(microseconds=LIFE) == timedelta(days=30)
