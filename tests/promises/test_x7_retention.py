"""X7: retention removes finished instances in batches, none while an ancestor is live."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from hark import (
    Await,
    Child,
    Context,
    Dag,
    Done,
    Duplicate,
    InvalidInput,
    Machine,
    Next,
    NoTarget,
    NotFound,
    Spawn,
    Stop,
    step,
)
from hark.engine.peers import peers
from hark.kernel.requests import Retain, RetainEvents, RetryInstance
from hark.model.decisions import Arm, Finish, NewInstance, Park
from hark.model.names import from_micros
from hark.testing import HandClock, Harness
from hark.views import instance_views
from tests.promises.support_machines import harness
from tests.promises.support_signals import Turns
from tests.support.harness import drained
from tests.support.inspect import counted, everything, query, until
from tests.support.stores import Store

DAY = 86400


class Brief(Machine):
    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("as asked") if ctx.state.get("fail") else Done("brief")


class Family(Machine):
    """A parent that waits for `go` when its children have ended; depth says how many generations follow."""

    @step
    async def start(self, ctx: Context) -> Any:
        depth = ctx.state.get("depth", 0)
        if not depth:
            return Done()
        child = Child(Family, {"depth": depth - 1, "wait": False}, id=f"{ctx.id}.{depth - 1}")
        return Spawn([child], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Any:
        return Await("go", then=self.end) if ctx.state.get("wait", True) else Done()

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Subscriber(Machine):
    """Long-lived: consumes one signal after another."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("news", then=self.read)

    @step
    async def read(self, ctx: Context) -> Any:
        if ctx.awaited[0].payload == "end":
            return Done()
        return Next("start")


def open_app(store: Store, **options: Any) -> Harness:
    return Harness(Brief, Family, Subscriber, url=store.url, **{**store.options, **options})


def now_of(app: Harness) -> datetime:
    return from_micros(app.clock.now)


async def test_x7_retention_removes_finished_instances_with_all_their_rows(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="old"))
        await drained(app, app.signal("old", "news", "first", dedup_key="1"))
        await drained(app, app.signal("old", "news", "end"))
        await app.start(Brief, {"fail": True}, id="failed")
        await drained(app, app.start(Subscriber, id="cancelled"))
        await app.cancel("cancelled")
        await app.advance(DAY)
        assert sorted(await app.forget(before=now_of(app))) == ["cancelled", "failed", "old"]
        for id in ("old", "failed", "cancelled"):
            with pytest.raises(NotFound):
                await app.get(id)
        with pytest.raises(NoTarget):
            await app.signal("old", "news", dedup_key="1")  # removed with its instance
        tables = await everything(store)
        left = {name for name, rows in tables.items() if rows}
        assert left == {"definitions", "secrets"}  # the store's own


async def test_x7_retention_keeps_what_finished_after_the_cutoff(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Brief, id="old"))
        await app.advance(DAY)
        limit = now_of(app)
        await app.start(Brief, id="at-the-limit")
        await drained(app, app.start(Subscriber, id="alive"))
        assert await app.forget(before=limit) == ["old"]
        assert {instance.id for instance in await app.list()} == {"at-the-limit", "alive"}
        assert await app.events("alive")


async def test_x7_retention_never_removes_a_live_instance(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="alive"))
        await app.advance(3650 * DAY)
        assert await app.forget(before=now_of(app)) == []
        assert (await app.signal("alive", "news", "end")).status == "woke"
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_x7_retention_removes_the_oldest_first_in_batches(store: Store) -> None:
    async with open_app(store) as app:
        for day in range(5):
            await drained(app, app.start(Brief, id=f"day-{day}"))
            await app.advance(DAY)
        assert sorted(await app.forget(before=now_of(app), limit=2)) == ["day-0", "day-1"]
        assert [instance.id for instance in await app.list()] == ["day-4", "day-3", "day-2"]
        assert sorted(await app.forget(before=now_of(app), limit=2)) == ["day-2", "day-3"]
        assert await app.forget(before=now_of(app), limit=2) == ["day-4"]
        assert await app.forget(before=now_of(app), limit=2) == []


async def test_x7_nothing_is_removed_while_an_ancestor_is_live(store: Store) -> None:
    async with open_app(store) as app:
        await app.start(Family, {"depth": 3}, id="root")
        await drained(app, app.start(Brief, id="other"))
        generations = {"root", "root.2", "root.2.1", "root.2.1.0"}
        assert (await app.get("root")).status == "awaiting_signal"
        assert (await app.get("root.2.1.0")).status == "done"
        await app.advance(DAY)
        assert await app.forget(before=now_of(app)) == ["other"]
        assert {instance.id for instance in await app.list()} == generations
        await drained(app, app.signal("root", "go"))
        await app.advance(DAY)
        assert set(await app.forget(before=now_of(app))) == generations


async def test_x7_a_batch_skips_instances_that_must_stay(store: Store) -> None:
    async with open_app(store) as app:
        for n in range(3):
            await app.start(Family, {"depth": 1}, id=f"parent-{n}")
        await app.drain()
        await app.advance(1)
        await drained(app, app.start(Brief, id="younger"))
        await app.advance(DAY)
        assert await app.forget(before=now_of(app), limit=1) == ["younger"]


async def test_x7_instances_that_must_stay_are_scanned_outside_the_turns(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many must stay, the retention turn only gets the ids that can be removed."""
    monkeypatch.setattr(instance_views, "_PAGE", 2)
    async with open_app(store) as app:
        for n in range(5):
            await app.start(Family, {"depth": 1}, id=f"parent-{n}")
        await app.drain()
        await app.advance(1)
        for id in ("b", "a", "c"):
            await app.start(Brief, id=id)
        await app.drain()
        await app.advance(DAY)
        assert [history["id"] for history in await app.export(before=now_of(app), limit=2)] == ["a", "b"]
        with counted(store, monkeypatch) as sent:
            assert await app.forget(before=now_of(app), limit=2) == ["a", "b"]
            assert await app.forget(before=now_of(app)) == ["c"]
            assert sent.count("expired") == 2
            assert await app.forget(before=now_of(app)) == []
            assert sent.count("expired") == 2


async def test_x7_a_child_whose_parent_was_retried_after_the_scan_stays(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await turns.start("M", "parent")
        child = NewInstance("M", "{}", "child", named=True)
        await turns.commit(await turns.claim("M"), Park((Arm("children", "w", children=(child,), join=1),)))
        await turns.commit(await turns.claim("M"), Finish("done"))
        await turns.commit(await turns.claim("M"), Finish("failed", error="broken"))
        look = Retain(before=2**60, ids=["child", "parent"])
        await turns.run(RetryInstance(target="parent"))
        await turns.run(look)
        assert look.result == []


async def test_x7_a_forever_key_leaves_a_tombstone(store: Store) -> None:
    async with open_app(store) as app:
        await app.start(Brief, id="first", correlation_key="invoice-1", correlation_scope="forever")
        await drained(app, app.start(Brief, id="second", correlation_key="invoice-2"))
        await app.advance(DAY)
        assert sorted(await app.forget(before=now_of(app))) == ["first", "second"]
        with pytest.raises(Duplicate) as taken:
            await app.start(Brief, correlation_key="invoice-1")
        assert taken.value.holder == "first"
        with pytest.raises(Duplicate):  # an id equal to a taken key
            await app.start(Brief, id="invoice-1")
        with pytest.raises(Duplicate):  # not even an instance with the id of the removed holder
            await app.start(Brief, id="first", correlation_key="invoice-1", correlation_scope="forever")
        with pytest.raises(NotFound):
            await app.get("invoice-1")
        await app.start(Brief, correlation_key="invoice-2")  # a live key was freed by its end
        # However often retention runs.
        await app.drain()
        await app.advance(3650 * DAY)
        await app.forget(before=now_of(app))
        with pytest.raises(Duplicate) as taken:
            await app.start(Brief, correlation_key="invoice-1")
        assert taken.value.holder == "first"


async def test_x7_consumed_signals_of_a_long_lived_instance_are_removed(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="reader"))
        for n in range(3):
            await app.signal("reader", "news", {"n": n})
            await drained(app, app.signal("reader", "news", {"keyed": n}, dedup_key=f"k{n}"))
        await app.signal("reader", "other", {"kept": True})
        await app.advance(DAY)
        assert await app.forget(before=now_of(app)) == []
        left = await query(store, "SELECT name, payload, dedup_key FROM inbox ORDER BY seq")
        assert left == [
            ("news", "null", "k0"),
            ("news", "null", "k1"),
            ("news", "null", "k2"),
            ("other", '{"kept":true}', None),  # never consumed
        ]
        for n in range(3):
            assert (await app.signal("reader", "news", "again", dedup_key=f"k{n}")).status == "duplicate"
        assert await app.drain() == {"steps": 0}
        assert (await app.signal("reader", "news", "end")).status == "woke"
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_x7_signals_consumed_after_the_cutoff_keep_their_payload(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="reader"))
        limit = now_of(app)
        await app.signal("reader", "news", "young", dedup_key="k")
        await drained(app, app.signal("reader", "news", "younger"))
        await app.forget(before=limit)
        assert await query(store, "SELECT payload FROM inbox ORDER BY seq") == [('"young"',), ('"younger"',)]


async def test_x7_consumed_signals_are_removed_in_batches(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="reader"))
        for n in range(5):
            await drained(app, app.signal("reader", "news", n))
        await app.advance(DAY)
        for left in (3, 1, 0):
            await app.forget(before=now_of(app), limit=2)
            assert await query(store, "SELECT count(*) FROM inbox") == [(left,)]


async def test_x7_history_can_be_exported_first(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Subscriber, id="old", correlation_key="reader"))
        await drained(app, app.signal("old", "news", {"n": 1}, dedup_key="k"))
        await app.signal("old", "other", "never consumed")
        await drained(app, app.signal("old", "news", "end"))
        await app.advance(1)
        await app.start(Brief, {"fail": True}, id="younger")
        await drained(app, app.start(Family, {"depth": 1}, id="alive"))
        await app.advance(DAY)
        before = now_of(app)
        exported = await app.export(before=before)
        assert [history["id"] for history in exported] == ["old", "younger"]
        old, younger = exported
        assert (old["status"], old["correlation_key"], old["definition"]) == ("done", "reader", "Subscriber")
        assert [event["type"] for event in old["events"]] == [event.type for event in await app.events("old")]
        sent = [(signal["name"], signal["payload"], signal["dedup_key"]) for signal in old["signals"]]
        assert sent == [("news", {"n": 1}, "k"), ("other", "never consumed", None), ("news", "end", None)]
        assert (younger["status"], younger["error"]) == ("failed", "as asked")
        assert msgspec.json.decode(msgspec.json.encode(exported))  # it can be written as JSON
        # Exporting removes nothing, and what is removed next is what was exported.
        assert await app.export(before=before) == exported
        assert [history["id"] for history in await app.export(before=before, limit=1)] == ["old"]
        assert await app.forget(before=before, limit=1) == ["old"]
        assert [history["id"] for history in await app.export(before=before)] == ["younger"]
        assert await app.forget(before=before) == ["younger"]
        assert await app.export(before=before) == []


async def test_x7_a_failed_instance_that_is_retried_in_time_stays(store: Store) -> None:
    async with open_app(store) as app:
        await drained(app, app.start(Brief, {"fail": True}, id="again"))
        await app.advance(DAY)
        await app.retry("again")
        assert await app.forget(before=now_of(app)) == []
        await app.drain()
        assert await app.forget(before=now_of(app)) == []  # it ended just now, not a day ago
        await app.advance(1)
        assert await app.forget(before=now_of(app)) == ["again"]


# -- failed instances --------------------------------------------------------------------------------


async def test_x7_failed_instances_are_kept_for_a_period_of_their_own(store: Store) -> None:
    async with open_app(store, retention=7 * DAY, retention_failed=30 * DAY) as app:
        await app.start(Brief, {"fail": True}, id="failed")
        await app.start(Brief, id="done")
        await drained(app, app.start(Subscriber, id="cancelled"))
        await app.cancel("cancelled")
        await app.advance(8 * DAY)
        await remove_old(app)
        assert [instance.id for instance in await app.list()] == ["failed"]
        await app.advance(21 * DAY)
        await remove_old(app)
        assert (await app.retry("failed")).status == "runnable"  # with everything that a retry needs
        await app.drain()
        await app.advance(29 * DAY)
        await remove_old(app)
        assert [instance.id for instance in await app.list()] == ["failed"]  # it failed again, 29 days ago
        await app.advance(2 * DAY)
        await remove_old(app)
        assert await app.list() == []


async def test_x7_failed_instances_are_kept_for_90_days_by_default_and_never_less_than_others(store: Store) -> None:
    for options, days in (({}, 90), ({"retention": 200 * DAY}, 200), ({"retention_failed": DAY}, 7)):
        async with open_app(store, **options) as app:
            await drained(app, app.start(Brief, {"fail": True}, id=f"after-{days}"))
            await app.advance(days * DAY - 1)
            await remove_old(app)
            assert [instance.id for instance in await app.list()] == [f"after-{days}"]
            await app.advance(2)
            await remove_old(app)
            assert await app.list() == []


async def test_x7_a_failed_job_is_kept_with_its_tasks_and_a_failed_task_goes_with_its_job(store: Store) -> None:
    """The retry of the job needs the outputs of its tasks, and a task without its job is of no use."""

    runs = 0

    async def good(task: Any) -> str:
        return "out"

    async def bad(task: Any) -> None:
        raise RuntimeError("as asked")

    async def bad_once(task: Any) -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise RuntimeError("as asked")
        return "out"

    failing = Dag("failing")
    failing.task("a", "good")
    failing.task("b", "bad", after=["a"])
    coping = Dag("coping")
    coping.task("a", "good")
    coping.task("b", "bad-once", after=["a"], on_fail={"regress_to": "a", "limit": 1})
    async with open_app(store, retention=7 * DAY, retention_failed=30 * DAY) as app:
        for name, handler in (("good", good), ("bad", bad), ("bad-once", bad_once)):
            app.handler(name)(handler)
        app.register(failing, coping)
        for job in (failing, coping):
            await drained(app, app.start(job, id=job.name))
        assert [(await app.get(job.name)).status for job in (failing, coping)] == ["failed", "done"]
        assert len(await app.list(kind="task", definition="coping", status="failed")) == 1
        kept = {id for id in await ids(store) if id.startswith("failing")}
        assert len(kept) == 3
        await app.advance(8 * DAY)
        await remove_old(app)
        assert await ids(store) == kept
        await app.retry("failing")
        await app.drain()
        assert (await app.get("failing")).status == "failed"
        await app.advance(31 * DAY)
        await remove_old(app)  # a job, and then its tasks
        assert await ids(store) == set()


async def test_x7_tasks_are_looked_at_once_an_hour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of failed jobs stay for months, and each look reads all of them."""
    reads: list[int] = []
    finished = instance_views._finished

    def counted(store: Any, before: int, failed_before: int, sort: int) -> Any:
        reads.append(sort)
        return finished(store, before, failed_before, sort)

    monkeypatch.setattr(instance_views, "_finished", counted)
    async with open_app(store) as app:
        for advance in (0, 60, 3480, 120, 60):
            await app.advance(advance)
            await remove_old(app)
    assert reads == [1, 0, 2] + [1, 0] * 2 + [1, 0, 2] + [1, 0]


async def ids(store: Store) -> set[str]:
    return {str(id) for (id,) in await query(store, "SELECT id FROM instances")}


async def test_x7_forget_takes_failed_instances_as_it_is_told_oldest_first(store: Store) -> None:
    async with open_app(store) as app:
        for number in range(6):
            await drained(app, app.start(Brief, {"fail": number % 2 == 0}, id=f"n-{number}"))
            await app.advance(60)
        before = now_of(app)
        assert [history["id"] for history in await app.export(before=before, limit=3)] == ["n-0", "n-1", "n-2"]
        assert sorted(await app.forget(before=before, limit=3)) == ["n-0", "n-1", "n-2"]
        assert sorted(await app.forget(before=before)) == ["n-3", "n-4", "n-5"]


async def test_x7_a_child_of_a_live_parent_stays_however_it_ended(store: Store) -> None:
    async with open_app(store, retention_failed=7 * DAY) as app:
        await drained(app, app.start(Family, {"depth": 1}, id="parent"))
        await query(store, "UPDATE instances SET status = 'failed' WHERE id = 'parent.0'")
        await app.advance(100 * DAY)
        await remove_old(app)
        assert await ids(store) == {"parent", "parent.0"}


async def test_x7_an_idle_bucket_is_removed_and_recreated_full(store: Store) -> None:
    limits = {"rate_limits": {"api": {"allowed": 1, "period": 3600}}, "concurrency": {"tenant": 1}}
    async with open_app(store, **limits) as app:
        for n in range(2):
            await app.start(Brief, id=f"limited-{n}", rate_limit="api", concurrency_key="tenant:a")
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await query(store, "SELECT count(*) FROM buckets") == [(2,)]
        await app.advance(DAY)
        assert await app.drain() == {"steps": 1, "done": 1}
        await app.advance(DAY)
        await app.forget(before=now_of(app))
        assert await query(store, "SELECT count(*) FROM buckets") == [(0,)]
        await app.start(Brief, rate_limit="api", concurrency_key="tenant:a")
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_x7_a_running_worker_applies_retention(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch after batch until nothing old is left, not one batch per minute."""
    monkeypatch.setattr(peers, "_RETENTION", 0.0)
    monkeypatch.setattr(instance_views, "_PAGE", 10)
    async with open_app(store, retention=7 * DAY) as app:
        handles = await app.start_many([(Brief, None)] * 25)
        await app.start(Subscriber, id="alive")
        async with app.worker():
            for handle in handles:
                await handle.result(timeout=30)
        await app.advance(timedelta(days=7, seconds=1))
        monkeypatch.setattr(peers, "_RETENTION", 3600.0)  # the first run is immediate, the second is not reached here
        async with app.worker():
            await until(lambda: _only(app, "alive"), "retention to remove all that is old")


async def test_x7_nothing_is_removed_before_the_retention_period_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_RETENTION", 0.0)
    async with open_app(store, retention=7 * DAY) as app:
        await drained(app, app.start(Brief, id="young"))
        await app.advance(3 * DAY)
        await drained(app, app.start(Brief, id="younger"))
        await app.advance(timedelta(days=4, seconds=1))
        async with app.worker():
            await until(lambda: _only(app, "younger"), "retention to remove what is a week old")


async def _only(app: Harness, id: str) -> bool:
    return [instance.id for instance in await app.list()] == [id]


# -- events of live instances -----------------------------------------------------------------------


async def remove_old(app: Harness) -> None:
    """Run retention now, as the poll of a process with a worker does every minute."""
    loop = app._clerk.loop.running
    assert loop is not None
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(app._clerk.peers._remove_old(), loop))


async def test_x7_events_of_a_live_instance_are_kept_unless_an_option_says_for_how_long(store: Store) -> None:
    for option, left in ((None, 5), (10 * DAY, 3)):
        async with open_app(store, event_retention=option) as app:
            subscriber = await drained(app, app.start(Subscriber, id=f"s-{option}"))
            await app.advance(11 * DAY)
            await drained(app, subscriber.signal("news", "a"))
            await remove_old(app)
            types = [event.type for event in await app.events(subscriber)]
            assert len(types) == left
            assert types[-3:] == ["signal", "next", "await"]
            assert (await subscriber.get()).status == "awaiting_signal"
            await drained(app, subscriber.signal("news", "end"))
            assert await subscriber.result(timeout=0) is None


async def test_x7_old_events_are_removed_a_batch_at_a_time_and_only_the_head_of_the_table_is_read(
    store: Store,
) -> None:
    clock = HandClock()
    async with Turns(store, clock) as turns:
        await turns.register("m")
        for number in range(5):
            await turns.start("m", f"old-{number}")
        clock.now += DAY * 1_000_000
        await turns.start("m", "young")
        before, more = clock.now, []
        for _ in range(3):
            request = RetainEvents(before=before, size=2)
            await turns.run(request)
            more.append(request.more)
        assert more == [True, True, False]
    assert await query(store, "SELECT instance_id FROM events") == [("young",)]


@pytest.mark.parametrize("option", ["retention", "retention_failed", "event_retention"])
@pytest.mark.parametrize("wrong", [0, -1, "a week", float("nan")])
def test_x7_a_malformed_retention_is_refused(option: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=option):
        Harness(**{option: wrong})


def test_x7_events_that_may_have_to_prove_a_commit_cannot_be_removed() -> None:
    """A turn whose connection was cut in COMMIT is recognised by its events, after an outage of hours too."""
    with pytest.raises(InvalidInput, match="at least 86400 seconds"):
        Harness(event_retention=DAY - 1)
    Harness(event_retention=DAY)


async def test_x7_a_task_is_kept_as_long_as_its_job(store: Store) -> None:
    """A failed job may be retried, and what runs then needs the outputs of the tasks that were completed before."""
    dag = Dag("slow")
    dag.task("early", "early")
    dag.task("late", "late", after=["early"], retry={"limit": 2, "delay": 10 * DAY})
    async with harness(store, dag) as app:
        works = False

        @app.handler("early")
        async def early(task: Any) -> str:
            return "output"

        @app.handler("late")
        async def late(task: Any) -> str:
            if not works:
                raise ValueError("not yet")
            return f"after {task.input}"

        job = await drained(app, app.start(dag))
        await drained(app, app.advance(10 * DAY))
        assert (await job.get()).status == "failed"
        assert await app.forget(before=now_of(app) - timedelta(days=7)) == []
        works = True
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"early": "output", "late": "after output"}
        await app.advance(8 * DAY)
        assert set(await app.forget(before=now_of(app) - timedelta(days=7))) == {job.id, f"{job.id}.0", f"{job.id}.1"}
