"""X3: the secret of the store is rotated while links are out and processes run."""

from __future__ import annotations

import asyncio

import pytest

from hark import Hark, InvalidInput
from hark.app import answer_links
from hark.app.door_access import DoorAccess
from tests.promises.support_signals import harness
from tests.promises.test_x3_links import opens, token_of
from tests.support.inspect import query, until
from tests.support.questions import Asker, ask
from tests.support.stores import Store


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARK_SECRET", raising=False)


async def test_x3_old_links_stay_valid_and_new_ones_have_the_new_secret(store: Store) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store)
        old = token_of((await app.awakeable(id)).url)
        assert await app.rotate_secret() == 2
        new = token_of((await app.awakeable(id)).url)
        assert new.partition(".")[0] != old.partition(".")[0]
        assert await opens(app, id, old)
        assert await opens(app, id, new)


async def test_x3_a_process_that_was_running_accepts_new_links_at_once(store: Store) -> None:
    async with harness(store, Asker) as app, harness(store, Asker) as other:
        id = await ask(app, store)
        for _ in range(2):
            await other.rotate_secret()
            app._links._next_lookup = 0.0
            assert await opens(app, id, token_of((await other.awakeable(id)).url))


async def test_x3_invented_secrets_do_not_make_a_server_read_all_the_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store)
        read, count = app._links.read, 0

        async def counted(store: object) -> None:
            nonlocal count
            count += 1
            await read(store)  # type: ignore[arg-type]

        monkeypatch.setattr(app._links, "read", counted)
        monkeypatch.setattr(answer_links, "_BETWEEN_LOOKUPS", 3600.0)
        for key in range(20):
            assert not await opens(app, id, f"key{key}.a.0.mac")
        assert count == 1


async def test_x3_a_process_that_was_running_signs_with_the_new_secret_after_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_links, "_REFRESH", 0.01)
    async with Hark(store.url, **store.options) as app, Hark(store.url, **store.options) as other:
        before = app._links.url("prom_1x", "nonce", None)
        await other.rotate_secret()

        async def changed() -> bool:
            return app._links.url("prom_1x", "nonce", None) != before

        await until(changed, "the new secret")
        assert app._links.url("prom_1x", "nonce", None) == other._links.url("prom_1x", "nonce", None)


async def test_x3_old_secrets_can_be_dropped(store: Store) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store)
        old = token_of((await app.awakeable(id)).url)
        assert await app.rotate_secret(drop_old=True) == 1
        assert not await opens(app, id, old)
        assert await opens(app, id, token_of((await app.awakeable(id)).url))
        assert len(await query(store, "SELECT * FROM secrets")) == 1


async def test_x3_rotations_at_the_same_time_all_happen(store: Store) -> None:
    apps = [Hark(store.url, **store.options) for _ in range(4)]
    for app in apps:
        await app.__aenter__()
    try:
        await asyncio.gather(*(app.rotate_secret() for app in apps))
        assert sorted(await query(store, "SELECT number FROM secrets")) == [(n,) for n in range(1, 6)]
    finally:
        for app in apps:
            await app.__aexit__()


async def test_x3_a_secret_of_the_app_is_not_rotated_in_the_store(store: Store) -> None:
    async with Hark(store.url, **store.options, secret="mine") as app:
        with pytest.raises(InvalidInput, match="HARK_SECRET=new,old"):
            await app.rotate_secret()
    assert len(await query(store, "SELECT * FROM secrets")) == 1


async def test_x3_an_app_that_is_given_another_store_uses_the_secret_of_that_store(
    sqlite_store: Store, pg_store: Store
) -> None:
    app = Hark(sqlite_store.url)
    async with app:
        first = app._links.url("prom_1x", "nonce", None)
    DoorAccess(app).use_store(pg_store.url, schema=pg_store.options["schema"])
    async with app:
        assert app._links.url("prom_1x", "nonce", None) != first
