"""V9: the version that starts by name, schedules and others choose; V8: two codes under one (faults 78 and 79)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hark import Await, Done, FunctionContext, Hark, InvalidInput, Machine, NotFound, step, workflow
from tests.support.harness import harness
from tests.support.stores import Store


def order(version: int, name: str = "order") -> Any:
    @workflow(name=name, version=version)
    async def code(ctx: FunctionContext) -> int:
        return version

    return code


async def version_of(app: Hark, name: str = "order") -> int:
    return (await (await app.start(name)).get()).version


async def test_a_start_by_name_chooses_the_newest_version_that_a_live_worker_has(store: Store) -> None:
    async with Hark(store.url, **store.options) as old:
        old.register(order(1))
        async with old.worker(), Hark(store.url, **store.options) as new:
            assert await version_of(new) == 1
            await new.register(order(2))  # recorded, and no worker has it
            assert (await version_of(new), await version_of(old)) == (1, 1)
            async with new.worker():
                assert (await version_of(new), await version_of(old)) == (2, 2)
            assert await version_of(old) == 1  # rolled back
        assert await version_of(old) == 2  # no worker at all: the newest


async def test_a_worker_that_registers_a_version_while_it_runs_starts_it_at_once(store: Store) -> None:
    async with Hark(store.url, **store.options) as app, app.worker():
        await app.register(order(1))
        await app.register(order(2))
        assert await version_of(app) == 2


async def test_a_retired_version_is_not_chosen_and_can_be_named(store: Store) -> None:
    newest = order(2)
    async with harness(store, order(1), newest) as app:
        await app.retire("order", 2)
        assert await version_of(app) == 1
        assert (await (await app.start("order", version=2)).get()).version == 2
        assert (await (await app.start(newest)).get()).version == 2  # its code was named
        await app.retire("order", 1)
        with pytest.raises(NotFound, match="All versions of 'order' are retired"):
            await app.start("order")
        await app.unretire("order", 2)
        assert await version_of(app) == 2
        assert [(one.version, one.retired) for one in await app.definitions()] == [(1, True), (2, False)]


async def test_a_retired_version_stays_retired_when_its_code_is_registered_again(store: Store) -> None:
    async with harness(store, order(1), order(2)) as app:
        await app.retire("order", 2)
    async with harness(store, order(1), order(2)) as app:
        assert await version_of(app) == 1


@pytest.mark.parametrize("verb", ["retire", "unretire"])
async def test_what_does_not_exist_or_is_malformed_cannot_be_retired(store: Store, verb: str) -> None:
    async with harness(store, order(1)) as app:
        with pytest.raises(NotFound, match="version 3 of 'order'"):
            await getattr(app, verb)("order", 3)
        with pytest.raises(NotFound, match="'nope'"):
            await getattr(app, verb)("nope", 1)
        for name, version in (("", 1), ("order", "1"), ("order", -1), ("order", True)):
            with pytest.raises(InvalidInput):
                getattr(app, verb)(name, version)


async def test_a_schedule_starts_the_version_that_is_chosen_at_its_tick(store: Store) -> None:
    async with harness(store, order(1), order(2)) as app:
        await app.schedule("hourly", "order", every=3600)
        await app.retire("order", 2)
        await app.advance(3600)
        await app.drain()
        await app.unretire("order", 2)
        await app.advance(3600)
        await app.drain()
        assert sorted(one.version for one in await app.list(definition="order")) == [1, 2]


PROCESS = """<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL">
  <message id="m" name="{message}"/>
  <process id="p" isExecutable="true">
    <startEvent id="s"><messageEventDefinition messageRef="m"/></startEvent>
    <sequenceFlow id="f" sourceRef="s" targetRef="e"/>
    <endEvent id="e"/>
  </process>
</definitions>"""


async def test_a_retired_process_listens_with_the_start_events_of_the_version_that_is_left(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(PROCESS.format(message="placed"))
        await app.deploy(PROCESS.format(message="ordered"))
        with pytest.raises(Exception, match="placed"):
            await app.message("placed", "k1")
        await app.retire("p", 2)
        started = await app.message("placed", "k1")
        assert (await started.get()).version == 1
        with pytest.raises(Exception, match="ordered"):
            await app.message("ordered", "k2")
        await app.unretire("p", 2)
        assert (await (await app.message("ordered", "k2")).get()).version == 2
        await app.retire("p", 1)
        await app.retire("p", 2)
        with pytest.raises(Exception, match="ordered"):
            await app.message("ordered", "k3")


async def test_versions_of_a_process_that_are_retired_at_once_are_all_retired(store: Store) -> None:
    """Each retire brings the start events of the version that is left as it was read: another one may come between."""
    async with harness(store) as app:
        for message in ("placed", "ordered", "asked"):
            await app.deploy(PROCESS.format(message=message))
        async with asyncio.timeout(5):  # less than a turn that conflicts is repeated
            await asyncio.gather(*(app.retire("p", version) for version in (3, 2)))
        started = await app.message("placed", "k1")
        assert (await started.get()).version == 1


async def test_versions_of_a_process_whose_name_a_function_has_too_can_be_retired(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(PROCESS.format(message="placed"))
        await app.register(order(9, "p"))
        await app.retire("p", 1)
        assert [(one.version, one.retired) for one in await app.definitions()] == [(1, True), (9, False)]


def looping(version: int, goes_on: Any) -> Any:
    @workflow(name="loop", version=version)
    async def loop(ctx: FunctionContext, n: int = 0) -> Any:
        if n:
            return version
        await ctx.wait_for_signal("go")
        return ctx.continue_as_new({"n": 1}, **({} if goes_on is None else {"version": goes_on}))

    return loop


@pytest.mark.parametrize(("goes_on", "ends_with"), [(None, 2), ("newest", 2), ("same", 1), (1, 1), (2, 2)])
async def test_continue_as_new_goes_on_with_the_newest_version_unless_told_otherwise(
    store: Store, goes_on: Any, ends_with: int
) -> None:
    async with harness(store, looping(1, goes_on)) as app:
        handle = await app.start("loop", {}, correlation_key="k")
        await app.drain()
        app.register(looping(2, goes_on))
        await app.signal("k", "go")
        await app.drain()
        assert await handle.result() == ends_with
        assert (await handle.get()).version == ends_with


async def test_continue_as_new_passes_over_a_retired_version(store: Store) -> None:
    async with harness(store, looping(1, None), looping(2, None)) as app:
        handle = await app.start("loop", {}, version=1)
        await app.retire("loop", 2)
        await app.signal(handle.id, "go")
        await app.drain()
        assert await handle.result() == 1


async def test_continue_as_new_with_an_unknown_version_fails_and_names_it(store: Store) -> None:
    async with harness(store, looping(1, 7)) as app:
        handle = await app.start("loop", {})
        await app.signal(handle.id, "go")
        await app.drain()
        found = await handle.get()
        assert found.status == "failed"
        assert "'loop' has no version 7" in (found.error or "")


class Waits(Machine, name="waits"):
    @step
    async def start(self, ctx: Any) -> Any:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Any) -> Any:
        return Done("old")


class WaitsNow(Machine, name="waits"):
    @step
    async def start(self, ctx: Any) -> Any:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Any) -> Any:
        return Done("new")


async def test_v8_other_code_under_one_version_is_named_when_it_is_registered(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness(store, Waits) as app:
        await app.start(Waits)
        await app.drain()
        [before] = await app.definitions()
        assert (before.name, before.version, before.kind, before.live) == ("waits", 1, "machine", 1)
        assert len(before.fingerprints) == 1
    with caplog.at_level(logging.WARNING, "hark"):
        async with harness(store, WaitsNow) as app:
            [now] = await app.definitions()
    assert len(now.fingerprints) == 2
    assert set(before.fingerprints) < set(now.fingerprints)
    [text] = [record.getMessage() for record in caplog.records if "other code" in record.getMessage()]
    assert "waits version 1" in text
    assert "unfinished instances that are older than the change: 1" in text
    assert all(code in text for code in now.fingerprints)


async def test_v8_the_same_code_registered_again_is_not_named(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hark"):
        for _ in range(2):
            async with harness(store, Waits) as app:
                assert len((await app.definitions())[0].fingerprints) == 1
    assert "other code" not in caplog.text


async def test_v8_two_live_workers_with_different_code_are_named(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with Hark(store.url, **store.options) as old:
        await old.register(Waits)
        async with old.worker():
            with caplog.at_level(logging.WARNING, "hark"):
                async with Hark(store.url, **store.options) as new:
                    await new.register(WaitsNow)
                    async with new.worker():
                        [found] = await old.definitions()
                        workers = await old.workers()
    assert (len(found.fingerprints), found.workers) == (2, 2)
    assert {worker.fingerprints["waits@1"] for worker in workers} == set(found.fingerprints)
    assert "(process " in caplog.text
    assert "other code" in caplog.text
