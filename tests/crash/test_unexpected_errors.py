"""Unexpected errors are logged, and unrelated work continues."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hark import Hark
from hark.engine.turns.reply import Reply
from hark.engine.turns.request_queue import Queued
from hark.kernel import reclaim
from hark.kernel.requests import Deliver, Reclaim
from tests.crash.machines import Patient
from tests.support.inspect import until
from tests.support.stores import Store


async def test_x5_a_poll_that_fails_is_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, other = Hark(store.url, **store.options), Hark(store.url, **store.options)
    app.register(Patient)
    async with app, other, app.worker():
        patient = await app.start(Patient, id="patient")
        await until(lambda: app.waits(name="tick"), "the park")
        changed = app._clerk.store.changed
        failures: list[bool] = []

        async def fail_once() -> bool:
            if not failures:
                failures.append(True)
                raise RuntimeError("raised by this test")
            return await changed()

        monkeypatch.setattr(app._clerk.store, "changed", fail_once)
        await until(lambda: failures, "the failure")
        await other.signal("patient", "tick", "told")
        assert await patient.result(timeout=60) == "told"
    assert "raised by this test" in caplog.text


async def test_x5_a_request_that_fails_does_not_fail_others_in_its_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing request without a caller at the head of a turn: the others of the turn are applied and answered."""

    async def fail(turn: Any, abandoned: list[str]) -> None:
        if turn.batch.of(Reclaim):
            raise RuntimeError("raised by this test")

    monkeypatch.setattr(reclaim, "_reclaim", fail)
    async with Hark(store.url, **store.options) as app:
        await app.start(Patient, id="patient")
        replies: list[Reply[Any]] = [Reply() for _ in range(3)]
        told = [Queued(Deliver(target="patient", name="tick"), reply, time.monotonic()) for reply in replies]
        app._clerk.queue.put_back([Queued(Reclaim(owners=["nobody"]), None, time.monotonic()), *told])
        app._clerk.loop.wake()
        assert [(await reply).status for reply in replies] == ["stored"] * 3
    assert "Reclaim failed: raised by this test" in caplog.text
