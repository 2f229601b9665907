"""J6, A3: signals and awakeables of a run meet the waits, the deadlines and the ends of its tasks."""

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, Reclaim, SettleAwakeable
from hark.model.activation import Claim
from hark.model.decisions import Arm, Decision, Finish, Park, Settle
from hark.model.epochs import count_of
from hark.model.errors import AlreadySettled, NoTarget, TaskLost
from tests.support.runs import job, note_awakeable, note_timeout, note_wait, on_run, running, tasks, workers
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE

pytestmark = pytest.mark.asyncio(loop_scope="module")


def send(payload: str = "1") -> Deliver:
    return Deliver(target="run", name="a", payload=payload)


def parked(task: Claim, *arms: Arm) -> Commit:
    return Commit(claim=task, decision=Decision("await", "work", "{}", Park(arms, ())))


def ended(task: Claim) -> Commit:
    return Commit(claim=task, decision=Decision("done", "work", "{}", Finish("done", result="1")))


async def received(stage: Stage) -> dict[str, list[str | None]]:
    """The waits that the signals of the run are directed to, by instance; None if they are in the queue of the run."""
    found: dict[str, list[str | None]] = {}
    for row in (await stage.content()).signals:
        if row.kind == "signal" and row.consumed_at is None:
            found.setdefault(row.instance_id, []).append(row.wait_id)
    return found


@race(deep=True, every=True, more_than=20)
async def test_j6_a_signal_concurrent_with_the_wait_for_it_is_received(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    wait, delivery = note_wait(task, on_run("a", "w")), send()
    yield Duel(part(wait), part(delivery))
    assert await received(stage) == {"run.0": ["w"]}
    if wait.result is None:
        assert delivery.result.status == "woke"
    else:
        assert (wait.result.payload, delivery.result.status) == ("1", "stored")


@race(deep=True)
async def test_j6_a_signal_concurrent_with_a_park_on_it_wakes_the_task(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    yield Duel(part(parked(task, on_run("a", "w"))), part(send()))
    assert await received(stage) == {"run.0": ["w"]}
    assert (await stage.content()).instances["run.0"].status == "runnable"


@race(deep=True)
async def test_j6_a_signal_concurrent_with_the_end_of_the_linger_wakes_the_task(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    await stage.one.run(note_wait(task, on_run("a", "w")))
    _, delivering = yield Duel(part(parked(task)), part(send()))
    assert await received(stage) == {"run.0": ["w"]}
    assert (await stage.content()).instances["run.0"].status == "runnable"
    for arrived in delivering.arrived.values():  # the delivery was first: the park found the row
        assert (arrived.epoch, [row.wait_id for row in arrived.rows]) == (task.epoch, ["w"])


@race(deep=True)
async def test_j7_a_signal_concurrent_with_the_park_that_gives_its_slot_to_other_work_is_not_lost(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    await stage.one.run(note_wait(task, on_run("a", "w")))
    await stage.one.run(job("other"))
    [other] = (await stage.one.run(claim=workers())).claims
    await stage.one.run(tasks(other, "other.0"))  # it waits for the slot
    parking, delivering = yield Duel(part(parked(task), claim=workers(room=1)), part(send()))
    assert [claim.id for claim in parking.claims] == ["other.0"]
    assert await received(stage) == {"run.0": ["w"]}
    assert (await stage.content()).instances["run.0"].status == "runnable"
    assert delivering.deliveries[0].result.status == "woke"


@race(deep=True)
async def test_fault_52_a_signal_concurrent_with_a_lost_lease_reaches_the_next_activation(
    stage: Stage, fates: set[bool]
) -> Race:
    """It is given to the handler that loses its lease only if the next one has it in its inbox."""
    [task] = await running(stage.one.run, "run", "run.0")
    await stage.one.run(note_wait(task, on_run("a", "w")))
    reclaiming, delivering = yield Duel(part(Reclaim(owners=["worker"]), claim=workers("other")), part(send()))
    [claim] = reclaiming.claims
    assert count_of(claim.epoch) > count_of(task.epoch)
    assert await received(stage) == {"run.0": ["w"]}
    for arrived in delivering.arrived.values():
        assert [row.wait_id for row in arrived.rows] == ["w"]
        if arrived.epoch == task.epoch:
            assert claim.inbox == arrived.rows
        else:
            assert (arrived.epoch, claim.inbox) == (claim.epoch, [])
        fates.add(arrived.epoch == task.epoch)


@race(deep=True)
async def test_j6_one_signal_goes_to_one_of_two_concurrent_waits(stage: Stage) -> Race:
    first, second = await running(stage.one.run, "run", "run.0", "run.1")
    await stage.one.run(send())
    waits = [note_wait(first, on_run("a", "w0")), note_wait(second, on_run("a", "w1"))]
    yield Duel(part(waits[0]), part(waits[1]))
    answers = [wait.result for wait in waits]
    assert sorted(answer is None for answer in answers) == [False, True]
    assert list((await received(stage)).values()) == [["w0" if answers[1] is None else "w1"]]


@race(deep=True)
async def test_j6_two_concurrent_signals_go_to_two_waits(stage: Stage) -> Race:
    first, second = await running(stage.one.run, "run", "run.0", "run.1")
    await stage.one.run(note_wait(second, on_run("a", "w0")))
    await stage.one.run(note_wait(first, on_run("a", "w1")))
    await stage.one.run(parked(first))
    yield Duel(part(send("1")), part(send("2")))
    assert await received(stage) == {"run.1": ["w0"], "run.0": ["w1"]}
    assert (await stage.content()).instances["run.0"].status == "runnable"


@race(deep=True)
async def test_j6_of_two_handlers_that_wait_for_one_name_each_is_given_one_of_two_signals(stage: Stage) -> Race:
    first, second = await running(stage.one.run, "run", "run.0", "run.1")
    await stage.one.run(note_wait(first, on_run("a", "w0")))
    await stage.one.run(note_wait(second, on_run("a", "w1")))
    one, two = yield Duel(part(send("1")), part(send("2")))
    assert await received(stage) == {"run.0": ["w0"], "run.1": ["w1"]}
    given = [row.wait_id for turn in (one, two) for arrived in turn.arrived.values() for row in arrived.rows]
    assert len(given) == len(set(given))


@pytest.mark.parametrize("executing", [True, False])
@race(deep=True)
async def test_j6_a_signal_concurrent_with_the_deadline_of_its_wait_is_received_once(
    stage: Stage, executing: bool
) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    await stage.one.run(note_wait(task, on_run("a", "w", timeout=MINUTE)))
    if not executing:
        await stage.one.run(parked(task))
    stage.clock.advance(MINUTE)
    late = note_timeout(task, "w")
    yield Duel(part(late) if executing else part(sweep=True), part(send()))
    content = await stage.content()
    if content.kinds("run.0") == ["timer"]:
        assert await received(stage) == {"run": [None]}
    else:
        assert await received(stage) == {"run.0": ["w"]}
    assert [wait.fired_at is not None for wait in content.waits_of("run.0")] == [True]
    if executing:
        assert late.result.kind == ("timer" if "timer" in content.kinds("run.0") else "signal")


@race(deep=True)
async def test_j6_a_signal_concurrent_with_the_cancel_of_its_task_stays_in_the_run(stage: Stage) -> Race:
    task, other = await running(stage.one.run, "run", "run.0", "run.1")
    await stage.one.run(note_wait(task, on_run("a", "w")))
    await stage.one.run(parked(task))
    yield Duel(part(Cancel(target="run.0")), part(send()))
    assert await received(stage) == {"run": [None]}
    wait = note_wait(other, on_run("a", "w2"))
    await stage.one.run(wait)
    assert wait.result.payload == "1"


@race(deep=True)
async def test_j6_a_signal_concurrent_with_the_end_of_its_task_reaches_the_next_wait(stage: Stage) -> Race:
    task, other = await running(stage.one.run, "run", "run.0", "run.1")
    await stage.one.run(note_wait(task, on_run("a", "w1")))
    await stage.one.run(note_wait(other, on_run("a", "w2")))
    await stage.one.run(parked(other))
    yield Duel(part(ended(task)), part(send()))
    assert await received(stage) == {"run.1": ["w2"]}
    assert (await stage.content()).instances["run.1"].status == "runnable"


@race(deep=True)
async def test_j6_a_signal_concurrent_with_the_cancel_of_the_job_is_stored_before_it_or_refused(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    await stage.one.run(note_wait(task, on_run("a", "w")))
    delivery, note = send(), note_wait(task, on_run("a", "w2"))
    yield Duel(part(Cancel(target="run")), part(delivery, note))
    assert isinstance(delivery.result, NoTarget) == (await received(stage) == {})
    assert note.result is None or isinstance(note.result, TaskLost)
    assert (await stage.content()).instances["run.0"].status == "cancelled"


# -- awakeables --------------------------------------------------------------------------------------


async def _asking(stage: Stage, timeout: int | None = None) -> tuple[Claim, str]:
    [task] = await running(stage.one.run, "run", "run.0")
    ask = note_awakeable(task, "awakeable#0", timeout=timeout)
    await stage.one.run(ask)
    return task, ask.result.id


def _question(id: str) -> Arm:
    return Arm("awakeable", "w", place="w", name=id)


def _resolve(id: str) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1"))


@pytest.mark.parametrize("parks", [True, False])
@race(deep=True)
async def test_fault_44_an_answer_concurrent_with_the_park_or_the_wait_of_the_task_reaches_it(
    stage: Stage, parks: bool
) -> Race:
    task, id = await _asking(stage)
    wait = note_wait(task, _question(id))
    yield Duel(part(parked(task, _question(id)) if parks else wait), part(_resolve(id)))
    content = await stage.content()
    assert content.kinds("run.0") == ["awakeable"]
    assert content.awakeables[id].status == "RESOLVED"
    if parks:
        assert content.instances["run.0"].status == "runnable"
    else:
        assert [armed.fired_at is not None for armed in content.waits_of("run.0")] == [True]


@pytest.mark.parametrize("target", ["run", "run.0"])
@race(deep=True)
async def test_fault_46_an_answer_concurrent_with_a_cancel_of_the_job_or_the_task_leaves_one_status(
    stage: Stage, target: str
) -> Race:
    task, id = await _asking(stage)
    await stage.one.run(parked(task, _question(id)))
    answer = _resolve(id)
    yield Duel(part(Cancel(target=target)), part(answer))
    content = await stage.content()
    status = "CANCELLED" if isinstance(answer.result, AlreadySettled) else "RESOLVED"
    assert content.awakeables[id].status == status
    assert content.instances["run.0"].status == "cancelled"


@race(deep=True)
async def test_fault_43_an_answer_concurrent_with_the_timeout_of_a_parked_task_leaves_one_status(stage: Stage) -> Race:
    task, id = await _asking(stage, MINUTE)
    await stage.one.run(parked(task, Arm("awakeable", "w", place="w", name=id, timeout=MINUTE)))
    stage.clock.advance(MINUTE)
    answer = _resolve(id)
    yield Duel(part(sweep=True), part(answer))
    content = await stage.content()
    status = "TIMEOUT" if isinstance(answer.result, AlreadySettled) else "RESOLVED"
    assert content.awakeables[id].status == status
    assert content.kinds("run.0") == ["awakeable"]


@race()
async def test_a3_two_tasks_that_ask_at_the_same_time_get_two_numbers(stage: Stage) -> Race:
    first, second = await running(stage.one.run, "run", "run.0", "run.1")
    asks = [note_awakeable(first, "awakeable#0"), note_awakeable(second, "awakeable#0")]
    yield Duel(part(asks[0]), part(asks[1]))
    assert sorted(ask.result.entry_index for ask in asks) == [0, 1]
    assert (await stage.one.run(claim=workers())).claims == []
