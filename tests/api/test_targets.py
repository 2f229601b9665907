"""A target is an id, a correlation key or a handle. An id wins; a key means its live holder, else the latest kept."""

from collections.abc import AsyncIterator

import pytest

from hark import Await, Context, Done, Machine, NoTarget, NotFound, Stop, step
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.stores import Store

ODD_NAMES = ["order:42", "a b", "ключ", "鍵🔑", "%41", "a/b?c=d&e#f", "'; DROP TABLE instances; --", "\\", '"', " "]


class Waiter(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Waiter, url=store.url, **store.options) as app:
        yield app


async def finish(app: Harness, target: str) -> None:
    await drained(app, app.signal(target, "go"))


async def test_id_key_and_handle_mean_the_same_instance(app: Harness) -> None:
    handle = await drained(app, app.start(Waiter, id="id", correlation_key="key"))
    for target in (handle, "id", "key"):
        assert (await app.get(target)).id == "id"
        assert [event.instance_id for event in await app.events(target)] == ["id", "id"]
    assert (await app.signal("key", "go", 5)).instance_id == "id"
    await app.drain()
    for target in (handle, "id", "key"):
        assert await app.result(target) == 5


async def test_an_instance_value_is_a_target_too(app: Harness) -> None:
    await app.start(Waiter, id="id")
    instance = await app.get("id")
    assert (await app.signal(instance, "go")).instance_id == "id"


async def test_a_key_means_its_live_holder(app: Harness) -> None:
    await app.start(Waiter, id="first", correlation_key="key")
    await finish(app, "key")
    await app.advance(1)
    await app.start(Waiter, id="second", correlation_key="key")
    assert (await app.get("key")).id == "second"
    assert (await app.signal("key", "go")).instance_id == "second"


async def test_the_latest_holder_is_found_after_an_earlier_one_was_cancelled(app: Harness) -> None:
    await drained(app, app.start(Waiter, id="old", correlation_key="key"))
    await app.cancel("old")
    await app.advance(1)
    await app.start(Waiter, id="young", correlation_key="key")
    await finish(app, "young")
    assert (await app.get("key")).id == "young"


async def test_a_live_holder_wins_over_a_later_instance_that_has_ended(app: Harness) -> None:
    """A retry takes the key back from an instance that was started, and has ended, in between."""
    healthy: list[bool] = []

    class Fragile(Machine):
        @step
        async def start(self, ctx: Context) -> Await | Stop:
            return Await("go", then=self.end) if healthy else Stop("broken")

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

    await drained(app, app.start(Fragile, id="old", correlation_key="key"))
    await app.advance(1)
    await app.start(Waiter, id="young", correlation_key="key")
    await finish(app, "young")
    assert (await app.get("key")).id == "young"
    healthy.append(True)
    await app.retry("old")
    assert (await app.get("key")).id == "old"


async def test_an_id_wins_over_a_key(app: Harness) -> None:
    """They cannot be equal while the key is live; once its holder has ended, another instance may have it as id."""
    await app.start(Waiter, id="one", correlation_key="name")
    await finish(app, "one")
    await app.start(Waiter, id="name")
    assert (await app.get("name")).id == "name"
    assert (await app.signal("name", "go")).instance_id == "name"


async def test_a_key_may_be_any_text(app: Harness) -> None:
    for name in ODD_NAMES:
        handle = await app.start(Waiter, correlation_key=name)
        await drained(app, app.start(Waiter, correlation_key=name + "x"))
        assert (await app.get(name)).id == handle.id
        assert (await app.get(name)).correlation_key == name
        assert (await app.signal(name, "go", name, dedup_key=name)).status == "woke"
        await app.drain()
        assert await app.result(name) == name


async def test_names_that_differ_in_one_byte_are_different(app: Harness) -> None:
    """Keys and the names of signals are not folded: case, accents and blanks count."""
    keys = ["key", "Key", "KEY", "key ", " key", "kéy", "ke\u0301y", "k\u00e9y" + "\u200b"]
    for key in keys:
        await app.start(Waiter, id=f"i{keys.index(key)}", correlation_key=key)
    await app.drain()
    for key in keys:
        assert (await app.get(key)).id == f"i{keys.index(key)}"
    assert (await app.signal("key", "GO")).status == "stored"
    assert (await app.signal("key", "go ")).status == "stored"
    assert (await app.signal("key", "go")).status == "woke"


async def test_a_missing_target_raises_not_found_for_reads_and_no_target_for_signals(app: Harness) -> None:
    for asked in (app.get("x"), app.result("x"), app.cancel("x"), app.retry("x"), app.events("x")):
        with pytest.raises(NotFound):
            await asked
    with pytest.raises(NoTarget):
        await app.signal("x", "go")


async def test_generated_ids_are_uuids_in_the_order_of_the_starts(app: Harness) -> None:
    ids = [handle.id for handle in await app.start_many([(Waiter, None)] * 50)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50
    assert all(len(id) == 36 and id[14] == "7" for id in ids)
