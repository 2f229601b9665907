"""X6: metrics in the format of Prometheus are correct; they are read by index only (tests/plans checks the plans)."""

import contextlib
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from hark import (
    AlreadySettled,
    Await,
    Conflict,
    Context,
    Done,
    FunctionContext,
    Hark,
    InstanceFailed,
    Machine,
    Retry,
    step,
    workflow,
)  # fmt: skip
from hark.views import health
from tests.doors.support_cli import HARK, store_options
from tests.support.http import app_on, ask, serving
from tests.support.inspect import until
from tests.support.stores import Store


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    app = app_on(store)
    async with app:
        yield app


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app, queues={"default": 10}) as client:
        yield client


async def scrape(http: httpx.AsyncClient) -> dict[str, float]:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|summary))", line), line
        else:
            found = re.fullmatch(r'([a-z_]+(?:\{(?:,?[a-z]+="(?:[^"\\\n]|\\.)*")+\})?) ([0-9.]+)', line)
            assert found, line
            samples[found[1]] = float(found[2])
    return samples


async def test_x6_the_metrics_are_correct(http: httpx.AsyncClient, app: Hark, store: Store) -> None:
    await ask(store, "prom_1", "prom_2")
    await app.start("Order", id="o-1")
    await until(lambda: _parked(app), "the park")
    for n in range(3):
        await app.start("Order", queue='elsewhere "x"\\', id=f"later-{n}")
    figures = await scrape(http)
    assert figures['hark_waits{kind="awakeable"}'] == figures["hark_awakeables_pending"] == 2
    assert figures['hark_waits{kind="signal"}'] == 2
    assert figures['hark_oldest_wait_seconds{kind="awakeable"}'] > 0
    assert figures['hark_oldest_wait_seconds{kind="children"}'] == 0
    assert figures['hark_queue_depth{queue="elsewhere \\"x\\"\\\\"}'] == 3
    assert figures['hark_instances{status="runnable"}'] == 3
    assert figures['hark_instances{status="executing"}'] == 0
    assert figures['hark_instances{status="held"}'] == 0
    assert figures["hark_timer_lag_seconds"] == 0
    assert figures["hark_turns_total"] > 0
    assert figures["hark_turn_requests_total"] >= 4
    assert figures["hark_claims_total"] >= 1
    before = figures["hark_wake_latency_seconds_count"]
    await app.signal("o-1", "paid")
    await app.result("o-1", timeout=30)
    after = await scrape(http)
    assert after["hark_wake_latency_seconds_count"] > before
    assert after["hark_wake_latency_seconds_sum"] > 0
    assert after['hark_waits{kind="signal"}'] == 0


async def _parked(app: Hark) -> bool:
    return (await app.get("o-1")).status == "awaiting_signal"


async def test_x6_a_timer_that_does_not_fire_shows_as_lag(store: Store) -> None:
    app = app_on(store)
    async with app, serving(app, worker=False) as http:
        await app.start("Order", delay=0.001)

        async def late() -> bool:
            return (await scrape(http))["hark_timer_lag_seconds"] > 0

        await until(late, "the timer to be late")


async def test_x6_an_instance_with_its_answer_does_not_count_as_waiting_before_it_runs(store: Store) -> None:
    app = app_on(store)
    async with app, serving(app, worker=False) as http:
        await ask(store, "prom_1", "prom_2")
        await app.resolve("prom_1", 1)
        figures = await scrape(http)
        assert figures['hark_waits{kind="awakeable"}'] == figures["hark_awakeables_pending"] == 1
        assert [wait.name for wait in await app.waits()] == ["prom_2"]
        assert (await app._read(health.facts))["oldest_wait"]["name"] == "prom_2"
        await app.resolve("prom_2", 1)
        figures = await scrape(http)
        assert figures['hark_waits{kind="awakeable"}'] == figures['hark_oldest_wait_seconds{kind="awakeable"}'] == 0
        assert (await app._read(health.facts))["oldest_wait"] is None


class Flaky(Machine):
    """Fails once, then waits for a signal that never arrives, for no time at all."""

    @step
    async def start(self, ctx: Context) -> Await:
        if not ctx.attempt:
            raise KeyError("x")
        return Await("never", then=self.end, timeout=0.001)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.timed_out)

    def handle(self, error: Exception, ctx: Context) -> Retry:
        return Retry()


async def test_x6_what_happened_to_instances_is_counted(http: httpx.AsyncClient, app: Hark, store: Store) -> None:
    app.register(Flaky)
    before = await scrape(http)
    assert before["hark_broadcasts_total"] == before["hark_late_answers_total"] == 0
    await app.result(await app.start(Flaky), timeout=30)
    for end in ("paid", "refused"):
        order = await app.start("Order")
        await order.wait_for("awaiting_signal", timeout=30)
        await app.signal(order, end)
        with contextlib.suppress(InstanceFailed):
            await order.result(timeout=30)
    order = await app.start("Order")
    await order.cancel()
    with pytest.raises(Conflict):
        await order.cancel()
    await app.broadcast("market-open", dedup_key="once")
    await app.broadcast("market-open", dedup_key="once")
    await ask(store, "prom_1")
    await app.resolve("prom_1", 1)
    with pytest.raises(AlreadySettled):
        await app.resolve("prom_1", 2)
    after = await scrape(http)
    assert after['hark_instances_started_total{definition="Order"}'] == 3
    assert after['hark_instances_started_total{definition="Flaky"}'] == 1
    assert {name: value for name, value in after.items() if name.startswith("hark_instances_finished_total")} == {
        'hark_instances_finished_total{status="cancelled",definition="Order"}': 1,
        'hark_instances_finished_total{status="done",definition="Flaky"}': 1,
        'hark_instances_finished_total{status="done",definition="Order"}': 1,
        'hark_instances_finished_total{status="failed",definition="Order"}': 1,
    }
    assert after["hark_failed_attempts_total"] == 2  # of Flaky, and the refused order
    assert after["hark_retries_total"] == 1
    assert after["hark_cancels_total"] == 1
    assert after["hark_timeouts_total"] == 1
    assert after["hark_broadcasts_total"] == 1
    assert after["hark_late_answers_total"] == 1


async def test_x6_a_function_that_is_undone_failed_once(http: httpx.AsyncClient, app: Hark) -> None:
    @workflow
    async def trip(ctx: FunctionContext) -> None:
        await ctx.run(str, "flight", undo=print)
        raise ValueError("no hotel")

    app.register(trip)
    await app.start("trip", id="t")
    with pytest.raises(InstanceFailed):
        await app.result("t", timeout=30)
    after = await scrape(http)
    assert after["hark_failed_attempts_total"] == 1
    assert after['hark_instances_finished_total{status="failed",definition="trip"}'] == 1


async def test_x6_an_awakeable_that_times_out_counts_as_a_timeout(store: Store) -> None:
    app = app_on(store)
    async with app, serving(app, worker=False) as http:
        await ask(store, "prom_1", timeout=1)

        async def fired() -> bool:
            await app.sweep()
            return (await scrape(http))["hark_timeouts_total"] == 1

        await until(fired, "the timeout")


def test_x6_a_worker_serves_its_metrics(store: Store, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from hark import Hark\n\napp = Hark()\n")
    command = [HARK, "worker", "--app", "shop:app", "--metrics-port", "0", *store_options(store)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("working; metrics on http://127.0.0.1:"), line
        url = line.split()[3].rstrip(";")
        assert "hark_turns_total" in httpx.get(f"{url}/metrics", timeout=60).text
        assert httpx.get(f"{url}/health", timeout=60).json()["status"] == "ok"
        assert httpx.get(f"{url}/instances", timeout=60).status_code == 404
        process.terminate()
        assert process.wait(timeout=100) == 0
