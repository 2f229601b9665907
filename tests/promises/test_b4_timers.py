"""B4: timers of processes start instances and wake tokens when they are due, without drift."""

from datetime import UTC, datetime, timedelta

from tests.promises.support_machines import harness
from tests.support.bpmn_files import END, START, bpmn, process, started_by
from tests.support.harness import drained
from tests.support.stores import Store

HOUR = 3600


def timer(id: str, kind: str, text: str, tag: str = "intermediateCatchEvent", more: str = "") -> str:
    """An event with a timer. `kind` is `Date`, `Duration` or `Cycle`."""
    definition = f"<timerEventDefinition><time{kind}>{text}</time{kind}></timerEventDefinition>"
    return f'<{tag} id="{id}"{more}>{definition}</{tag}>'


def by_timer(kind: str, text: str) -> str:
    return started_by("timer", f"><time{kind}>{text}</time{kind}></timerEventDefinition>", "")


async def test_b4_a_cycle_starts_an_instance_at_each_tick_however_late_it_is_handled(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(by_timer("Cycle", "R3/PT1H"))
        ticks = []
        for seconds in (HOUR, HOUR + 7, HOUR - 7, HOUR):
            await drained(app, app.advance(seconds))
            ticks.append(len(await app.list(kind="bpmn")))
        assert ticks == [1, 2, 3, 3]
        assert {tuple(one.state["tokens"]) for one in await app.list(kind="bpmn")} == {("approve",)}


async def test_b4_a_start_by_cron_and_one_by_date_begin_at_their_event(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(by_timer("Cycle", "0 0/5 * * * ?"))
        await drained(app, app.advance(600))
        found = await app.list(kind="bpmn")
        assert found
        assert all(one.state["tokens"] == ["approve"] for one in found)
        await app.deploy(
            started_by("timer", "><timeDate>2020-01-01T00:00:00Z</timeDate></timerEventDefinition>", "", "past")
        )
        await drained(app, app.advance(1))
        assert [one.state["tokens"] for one in await app.list(definition="past")] == [["approve"]]


async def test_b4_a_start_whose_cycle_is_over_starts_nothing(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(by_timer("Cycle", "R2/2020-01-01T00:00:00Z/PT1H"))
        await app.advance(10 * HOUR)
        assert await app.list(kind="bpmn") == []


async def test_b4_a_timer_waits_for_its_duration_and_one_of_zero_for_nothing(store: Store) -> None:
    wait, none = timer("wait", "Duration", "${delay}"), timer("none", "Duration", "PT0S")
    async with harness(store) as app:
        await app.deploy(bpmn(process("waits", START, none, wait, END)))
        one = await drained(app, app.start("waits", {"delay": "PT90M"}))
        await drained(app, app.advance(0))
        [waiting] = await app.waits(kind="timer")
        assert (await app.get(one.id)).state["tokens"] == ["wait"]
        await drained(app, app.advance(90 * 60 - 1))
        assert [left.deadline for left in await app.waits(kind="timer")] == [waiting.deadline]
        await drained(app, app.advance(1))
        assert (await app.get(one.id)).status == "done"


async def test_b4_feel_computes_the_date_of_a_timer_from_now(store: Store) -> None:
    wait = timer("wait", "Date", "=now() + duration(&quot;P1D&quot;)")
    async with harness(store) as app:
        await app.deploy(bpmn(process("tomorrow", START, wait, END)))
        started = await drained(app, app.start("tomorrow"))
        [waiting] = await app.waits(kind="timer")
        assert waiting.deadline is not None
        day = waiting.deadline - (await app.get(started.id)).created_at
        assert timedelta(0) <= day - timedelta(days=1) < timedelta(minutes=10)


async def test_b4_a_timer_text_that_cannot_be_read_fails_the_instance_and_names_the_element(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(bpmn(process("broken", START, timer("wait", "Duration", "${delay}"), END)))
        one = await drained(app, app.start("broken", {"delay": "soon"}))
        failed = await app.get(one.id)
        assert failed.status == "failed"
        assert "'wait'" in str(failed.error)
        assert "PT15M" in str(failed.error)


async def test_b4_a_due_date_of_a_user_task_may_be_over(store: Store) -> None:
    task = '<userTask id="approve" camunda:dueDate="2020-01-31T09:00:00Z"/>'
    async with harness(store) as app:
        await app.deploy(bpmn(process("late", START, task, END)))
        await drained(app, app.start("late"))
        [open] = await app.awakeables()
        assert open.due_at == datetime(2020, 1, 31, 9, tzinfo=UTC)
