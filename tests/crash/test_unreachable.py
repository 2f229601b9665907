"""The database is unreachable for a while: callers get an error, outcomes are kept, and waits for results continue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from hark import Hark, StoreUnavailable
from hark.engine.turns import caller_errors
from hark.store import postgres, sqlite
from hark.store.protocol import Lost
from tests.crash.machines import Gated, Patient
from tests.crash.processes import Workers
from tests.support.inspect import query, until
from tests.support.proxy import Proxy, cut_before
from tests.support.stores import Store, run_sql


@pytest.fixture
async def proxy(pg_store: Store) -> AsyncIterator[Proxy]:
    async with Proxy(pg_store.url) as proxy:
        yield proxy


@pytest.fixture
def workers(pg_store: Store, tmp_path: Path) -> Workers:
    return Workers(pg_store, tmp_path, lease=3.0)


async def opened(proxy: Proxy, workers: Workers) -> Hark:
    app = Hark(proxy.url, **workers.options)
    app.register(Gated, Patient)
    return await app.__aenter__()


async def test_x5_callers_do_not_hang_behind_an_outcome_that_waits_for_the_database(
    proxy: Proxy, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_errors, "PATIENCE", 0.3)
    app = await opened(proxy, workers)
    async with app.worker():
        handle = await app.start(Gated)
        await workers.until_traced("start 0")
        proxy.go_away()
        workers.open_gate()
        await until(
            lambda: not app._clerk.worker._activations._asyncio_tasks, "the step to end"
        )  # its outcome is queued in the clerk now
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="Nothing was stored"):
                await app.signal(handle.id, "tick")
        proxy.up.set()
        await handle.result(timeout=60)
    await app.__aexit__()
    assert [life.what for life in workers.trace()] == ["start 0", "end 0"]
    assert await query(workers.store, "SELECT count(*) FROM inbox") == [(0,)]


@pytest.mark.parametrize("busy", ["with nothing to do", "with a step running", "with a commit in doubt"])
async def test_x5_an_app_closes_even_if_the_database_is_gone(
    proxy: Proxy, workers: Workers, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    monkeypatch.setattr(caller_errors, "PATIENCE", 0.3)
    app = await opened(proxy, workers)
    patient = await app.start(Patient)
    worker = app.worker(grace=0.1)
    if busy == "with a step running":
        await worker.start()
        await app.start(Gated)
        await workers.until_traced("start 0")
    if busy == "with a commit in doubt":
        proxy.at_commit(cut_before)
        proxy.up.clear()
        asked = app.signal(patient, "tick")
        await until(lambda: proxy.accidents, "the cut")
    proxy.go_away()
    if busy == "with a step running":
        await asyncio.wait_for(worker.stop(), 60)
    await asyncio.wait_for(app.__aexit__(), 60)
    if busy == "with a commit in doubt":
        with pytest.raises(StoreUnavailable, match="Check whether it was stored"):
            await asked


async def test_fault_6_waiting_for_a_result_survives_an_outage(proxy: Proxy, workers: Workers) -> None:
    app = await opened(proxy, workers)
    async with app.worker():
        patient = await app.start(Patient, id="patient")
        result = asyncio.create_task(asyncio.wait_for(patient.result(), 60))
        await until(lambda: app._clerk.waiting.for_ends, "a waiter for the result")
        proxy.go_away()
        told = app.signal("patient", "tick", "told")  # requested during the outage, done after it
        await asyncio.sleep(0.3)
        assert not told.done()
        proxy.up.set()
        await told
        assert await result == "told"
    await app.__aexit__()


async def test_x5_a_connection_that_stops_responding_is_abandoned(proxy: Proxy, workers: Workers) -> None:
    """No reset and no error: the connection just stops responding. The timeouts are shorter than the lease."""
    app = await opened(proxy, workers)
    async with app.worker():
        patient = await app.start(Patient, id="patient")
        await until(lambda: app.waits(name="tick"), "the park")
        proxy.go_silent()
        await asyncio.wait_for(app.signal("patient", "tick", "told"), 60)
        assert await patient.result(timeout=60) == "told"
    await app.__aexit__()
    assert await query(workers.store, "SELECT count(*) FROM inbox") == [(1,)]


@pytest.mark.parametrize("call", ["a read", "a write", "a write behind an outcome", "a write in COMMIT"])
@pytest.mark.parametrize("outage", ["silent", "silent after a cut"])
async def test_x5_a_call_waits_for_a_database_that_does_not_answer_only_so_long(
    proxy: Proxy, workers: Workers, monkeypatch: pytest.MonkeyPatch, call: str, outage: str
) -> None:
    """Connecting, asking, asking again: all of it counts. With the lease of this app each try may take 10 s."""
    patience = 2.0
    monkeypatch.setattr(caller_errors, "PATIENCE", patience)
    monkeypatch.setattr(postgres, "_MAX_SILENCE", patience)
    app = Hark(proxy.url, **workers.options | {"lease": 60.0})
    app.register(Gated, Patient)
    async with app:
        await app.start(Patient, id="patient")
        if call == "a write behind an outcome":
            worker = app.worker(grace=0.1)
            await worker.start()
            await app.start(Gated)
            await workers.until_traced("start 0")
        if call == "a write in COMMIT":
            proxy.at_commit(cut_before)
            asked = app.signal("patient", "tick")
            await until(lambda: proxy.accidents, "the cut")
        proxy.go_silent(new_ones=True)
        if outage == "silent after a cut":
            proxy.cut()
        if call == "a write behind an outcome":
            workers.open_gate()
            await until(lambda: not app._clerk.worker._activations._asyncio_tasks, "the step to end")
        since = time.monotonic()
        if call != "a write in COMMIT":
            asked = app.get("patient") if call == "a read" else app.signal("patient", "tick")
        with pytest.raises(StoreUnavailable, match=r"does not answer|outcome is unknown") as refused:
            await asked
        assert time.monotonic() - since < 5 * patience
        assert "[Errno" not in str(refused.value)
        proxy.go_away()
        if call == "a write behind an outcome":
            await worker.stop()


async def test_fault_4_a_signal_is_found_by_the_poll_when_the_listener_was_killed(
    pg_store: Store, workers: Workers
) -> None:
    app, other = Hark(pg_store.url, **workers.options), Hark(pg_store.url, **workers.options)
    app.register(Patient)
    async with app, other, app.worker():
        patient = await app.start(Patient, id="patient")
        await until(lambda: app.waits(name="tick"), "the park")
        for deaf in (app, other):
            await until(lambda deaf=deaf: deaf._clerk.store._listener is not None, "the listener")
            pid = deaf._clerk.store._listener.get_server_pid()
            assert await asyncio.to_thread(run_sql, pg_store.url, f"SELECT pg_terminate_backend({pid})")
        await other.signal("patient", "tick", "told")
        assert await patient.result(timeout=60) == "told"


async def test_fault_5_a_waiter_that_was_cancelled_can_wait_again_and_leaves_nothing_behind(store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.register(Patient)
    async with app, app.worker():
        patient = await app.start(Patient, id="patient")
        for registered in (True, False):  # cancelled after it has registered, and while it registers
            waiter = asyncio.create_task(wait_for_result(app))
            await asyncio.sleep(0)
            if registered:
                await until(lambda: patient.id in app._clerk.waiting.for_ends, "the waiter")
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            del waiter
        await until(lambda: look_again(app), "the cancelled waiters to be removed")
        again = asyncio.create_task(wait_for_result(app))
        await app.signal(patient, "tick", "told")
        assert await again == "told"
        assert await app.result("patient", timeout=60) == "told"
        await until(lambda: not app._clerk.waiting.for_ends, "no waiter to be left")


def look_again(app: Hark) -> bool:
    app._clerk.hint()
    return not app._clerk.waiting.asked and not app._clerk.waiting.for_ends


async def wait_for_result(app: Hark) -> object:
    return await app.result("patient")


async def test_x5_a_lock_held_by_another_program_is_a_clear_error(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_errors, "PATIENCE", 0.1)
    monkeypatch.setattr(sqlite, "_MAX_WAIT", 0.05)
    async with Hark(sqlite_store.url) as app:
        await app.start(Patient, id="patient")
        other = apsw.Connection(sqlite.path_of(sqlite_store.url))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="Nothing was stored"):
            await asyncio.wait_for(app.signal("patient", "tick"), 60)
        other.execute("ROLLBACK")
        other.close()
        assert (await app.signal("patient", "tick")).status == "stored"


async def test_x5_a_database_that_is_slow_after_an_outage_is_asked_about_a_commit_until_it_answers(
    pg_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callers are told that the outcome is unknown; then each question has ten seconds of its own."""
    monkeypatch.setattr(caller_errors, "PATIENCE", 2.0)
    commit = postgres.PostgresTx.commit

    async def cut_after(tx: postgres.PostgresTx) -> None:
        monkeypatch.setattr(postgres.PostgresTx, "commit", commit)
        await commit(tx)
        raise Lost("cut")

    async with Hark(pg_store.url, **pg_store.options) as app:
        await app.start(Patient, id="patient")
        store = app._clerk.store
        committed, told = store.committed, False

        async def answer_slowly(xid: int) -> bool:
            if not told:
                raise Lost("away")
            await asyncio.sleep(1.2)
            return await committed(xid)

        monkeypatch.setattr(store, "committed", answer_slowly)
        monkeypatch.setattr(postgres.PostgresTx, "commit", cut_after)
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            await asyncio.wait_for(app.signal("patient", "tick", dedup_key="1"), 60)
        told = True
        await until(lambda: has_signalled(app), "the clerk to go on")
    assert await query(pg_store, "SELECT dedup_key FROM inbox ORDER BY 1") == [("1",), ("2",)]


async def has_signalled(app: Hark) -> bool:
    with suppress(StoreUnavailable):
        await app.signal("patient", "tick", dedup_key="2")
        return True
    return False
