"""J6: the signals of a run form one queue per name; each goes to exactly one wait, the oldest first."""

from typing import Any

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, StartInstances
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, InboxRow
from hark.model.decisions import Decision, Finish, Park, Redo, SendSignal
from hark.model.errors import NoTarget, TaskLost
from hark.store import statements as sql
from hark.store.protocol import Conflicted
from hark.store.sql import Sql
from tests.support.runs import note_inbox, note_state, note_timeout, note_wait, on_run, running, tasks, workers
from tests.support.turns import MINUTE, advance, ask, capacity, new


def send(name: str, payload: str = "null", **options: Any) -> Deliver:
    return Deliver(target="run", name=name, payload=payload, **options)


def end(task: Claim, *consume: int, failed: bool = False) -> Commit:
    move = Finish("failed", error="no") if failed else Finish("done", result="null")
    return Commit(claim=task, decision=Decision("stop" if failed else "done", "work", "{}", move, tuple(consume)))


def linger(task: Claim, *handed: int) -> Commit:
    return Commit(claim=task, decision=Decision("await", "work", "{}", Park(disarm=()), handed=handed))


def again(task: Claim, *consume: int) -> Commit:
    decision = Decision("retry", "work", "{}", Redo(0, drop_waits=True), tuple(consume))
    return Commit(claim=task, decision=decision)


async def inbox(turns: Any, task: Claim) -> list[InboxRow]:
    [found] = await ask(turns, note_inbox(task))
    return list(found)


async def test_fault_48_two_sends_before_a_wait_are_received_in_order(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(send("a", "1"))
    await turns.run(send("a", "2"), send("b", "3"))
    for n, payload in enumerate("12"):
        [row] = await ask(turns, note_wait(task, on_run("a", f"w{n}")))
        assert (row.payload, row.wait_id) == (payload, f"w{n}")


async def test_fault_49_a_second_wait_does_not_see_the_signal_of_the_first(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(send("a", "1"))
    [row] = await ask(turns, note_wait(task, on_run("a", "w1")))
    assert row.payload == "1"
    assert await ask(turns, note_wait(task, on_run("a", "w2"))) == [None]
    await turns.run(send("a", "2"))
    assert [(row.payload, row.wait_id) for row in await inbox(turns, task)] == [("1", "w1"), ("2", "w2")]


async def test_j6_a_signal_goes_to_the_oldest_wait_of_the_run_and_to_no_other(turns: Any) -> None:
    first, second, third = await running(turns.run, "run", "run.0", "run.1", "run.2")
    await turns.run(note_wait(second, on_run("a", "w1")))
    await turns.run(note_wait(first, on_run("a", "w2")), note_wait(third, on_run("b", "w3")))
    result = await turns.run(send("a", "1"))
    assert result.signalled == {"run.1"}
    result = await turns.run(send("a", "2"), send("a", "3"), send("b", "4"))
    assert result.signalled == {"run.0", "run.2"}
    received = [[row.payload for row in await inbox(turns, task)] for task in (first, second, third)]
    assert received == [["2"], ["1"], ["4"]]
    [row] = await ask(turns, note_wait(third, on_run("a", "w4")))
    assert row.payload == "3"


async def test_j6_a_turn_reports_the_rows_that_executing_tasks_receive(turns: Any) -> None:
    """The handler gets them after the commit, without another turn."""
    first, second, parked = await running(turns.run, "run", "run.0", "run.1", "run.2")
    for n, task in enumerate((first, first, second, parked)):
        await turns.run(note_wait(task, on_run("a", f"w{n}")))
    await turns.run(linger(parked))
    result = await turns.run(*[send("a", f"{n}") for n in range(4)])
    assert {id: one.epoch for id, one in result.arrived.items()} == {"run.0": first.epoch, "run.1": second.epoch}
    for task in (first, second):
        assert result.arrived[task.id].rows == await inbox(turns, task)
    assert [row.payload for row in result.arrived["run.0"].rows] == ["0", "1"]
    assert all(one.is_complete for one in result.arrived.values())


async def test_j6_rows_that_are_moved_to_an_executing_task_have_to_be_read(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_wait(first, on_run("a", "w0")))
    await turns.run(note_wait(second, on_run("a", "w1")), note_wait(second, on_run("b", "w2")))
    await turns.run(send("a", "1"))
    result = await turns.run(end(first), send("b", "2"))
    assert not result.arrived["run.1"].is_complete
    assert [row.payload for row in await inbox(turns, second)] == ["2", "1"]


class StaleTx:
    """A transaction that finds these waits, as PostgreSQL does if they end between its snapshot and the lock."""

    def __init__(self, tx: Any, found: list[Any]) -> None:
        self._tx = tx
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def fetch(self, statement: Any, rows: Any = None, **values: Any) -> Any:
        return self._found if statement is sql.run_waits else await self._tx.fetch(statement, rows, **values)


@pytest.mark.parametrize("times_out", [False, True])
async def test_j6_a_wait_that_ended_before_its_task_was_locked_receives_nothing(
    turns_on_both: Any, times_out: bool
) -> None:
    turns = turns_on_both
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1", timeout=MINUTE)))
    turns.clock.advance(MINUTE)
    await turns.run(note_timeout(task, "w1") if times_out else note_state(task, "{}", disarm=("w1",), run_id="run"))
    tx, delivery = await turns.store.begin(), send("a", "1")
    stale: Any = StaleTx(tx, [("run", "a", "w1", "run.0", "executing", task.epoch, False, "task")])
    with pytest.raises(Conflicted, match="ended before its task was locked"):
        await run_turn(stale, turns.rules, turns.catalog, [delivery])
    await tx.rollback()
    await turns.run(delivery)  # as the clerk does
    assert delivery.result.status == "stored"
    assert [row.kind for row in await inbox(turns, task)] == ["timer"] * times_out
    [row] = await ask(turns, note_wait(task, on_run("a", "w2")))
    assert row.payload == "1"


async def test_j6_a_signal_wakes_a_parked_task_in_its_own_turn_and_not_the_job(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1")))
    await turns.run(linger(task))
    delivery = send("a", "1")
    result = await turns.run(delivery, claim=workers())
    assert delivery.result.status == "woke"
    assert [(claim.id, [row.payload for row in claim.inbox]) for claim in result.claims] == [("run.0", ["1"])]
    assert [wait.fired_at is not None for wait in result.claims[0].waits] == [True]


async def test_j6_a_park_that_arms_a_wait_finds_the_signal_that_is_there(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(send("a", "1"))
    decision = Decision("await", "work", "{}", Park((on_run("a", "w1"),)))
    result = await turns.run(Commit(claim=task, decision=decision), claim=workers())
    assert [(row.payload, row.wait_id) for row in result.claims[0].inbox] == [("1", "w1")]


async def test_fault_52_the_next_worker_gets_the_signal_and_the_wait(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    wait = note_wait(task, on_run("a", "w1", timeout=MINUTE))
    await turns.run(wait)
    await turns.run(send("a", "1"))
    await turns.run(HandBack(claims=[task]))
    late = note_inbox(task)
    [claim] = (await turns.run(late, claim=workers("other"))).claims
    assert isinstance(late.result, TaskLost)
    assert [(row.payload, row.wait_id) for row in claim.inbox] == [("1", "w1")]
    assert [(armed.place, armed.deadline) for armed in claim.waits] == [("w1", wait.note.arm.deadline)]


@pytest.mark.parametrize("name", ["a.b", "*", ">", "a b", "run.a", "😀", "run"])
async def test_fault_51_names_are_isolated_per_run(turns: Any, name: str) -> None:
    [mine] = await running(turns.run, "run", "run.0")
    [theirs] = await running(turns.run, "run.a", "run.a.0")
    await turns.run(note_wait(theirs, on_run(name, "w1", "run.a")))
    await turns.run(note_wait(mine, on_run(f"{name}x", "w2")))
    await turns.run(send(name, "1"))
    assert await inbox(turns, theirs) == await inbox(turns, mine) == []
    [row] = await ask(turns, note_wait(mine, on_run(name, "w3")))
    assert row.payload == "1"


async def test_j6_a_dedup_key_counts_against_the_run_whichever_task_received_the_signal(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_wait(first, on_run("a", "w1")))
    deliveries = [send("a", str(n), dedup_key="k") for n in range(3)]
    await turns.run(deliveries[0])
    await turns.run(note_wait(second, on_run("a", "w2")))
    await turns.run(deliveries[1], deliveries[2])
    assert [delivery.result.status for delivery in deliveries] == ["woke", "duplicate", "duplicate"]
    assert await inbox(turns, second) == []
    stored = [send("b", "1", dedup_key="l"), send("b", "2", dedup_key="l")]
    await turns.run(*stored)
    await turns.run(note_wait(second, on_run("b", "w3")))
    late = send("b", "3", dedup_key="l")
    await turns.run(late)
    assert [delivery.result.status for delivery in (*stored, late)] == ["stored", "duplicate", "duplicate"]


async def test_j6_a_signal_to_a_task_is_refused_and_says_where_to_send_it(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1")))
    [refused] = await ask(turns, Deliver(target="run.0", name="a"))
    assert isinstance(refused, NoTarget)
    assert "Send to its job" in str(refused)
    assert await inbox(turns, task) == []


async def test_j6_a_signal_that_a_step_sends_reaches_the_waiting_task(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1")))
    await turns.run(StartInstances(items=[new("sender")]))
    [sender] = (await turns.run(claim=capacity("worker"))).claims
    await turns.run(advance(sender, SendSignal("run", "a", "1")))
    assert [row.payload for row in await inbox(turns, task)] == ["1"]


# -- what is given back ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "another attempt", "checkpoint"])
async def test_j6_a_signal_that_a_task_did_not_consume_goes_back_to_its_place(turns: Any, how: str) -> None:
    task, other = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_wait(task, on_run("a", "w1")))
    await turns.run(send("a", "1"), send("a", "2"))
    match how:
        case "done":
            await turns.run(end(task))
        case "failed":
            await turns.run(end(task, failed=True))
        case "cancelled":
            await turns.run(Cancel(target="run.0"))
        case "another attempt":
            await turns.run(again(task))
        case _:
            await turns.run(note_state(task, "{}", disarm=("w1",), run_id="run"))
    found = await ask(turns, *(note_wait(other, on_run("a", f"o{n}")) for n in range(3)))
    assert [row and row.payload for row in found] == ["1", "2", None]


@pytest.mark.parametrize("run_ends", ["failed", "done"])
async def test_j6_a_signal_is_given_back_to_a_run_that_failed_and_not_to_one_that_is_done(
    turns: Any, run_ends: str
) -> None:
    """A failed run may be retried, and its other tasks may run on: they find the signal."""
    task, other = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_wait(task, on_run("a", "w1")))
    await turns.run(send("a", "1"))
    tx = await turns.store.begin()
    await tx.fetch(Sql(f"UPDATE instances SET status = '{run_ends}', finished_at = 1 WHERE id = 'run'"))
    await tx.commit()
    await turns.run(end(task))
    [row] = await ask(turns, note_wait(other, on_run("a", "w2")))
    assert (row and row.payload) == ("1" if run_ends == "failed" else None)


async def test_j6_a_signal_that_is_given_back_is_not_handed_to_the_next_attempt(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1")))
    [claim] = (await turns.run(send("a", "1"), again(task), claim=workers())).claims
    assert (claim.id, claim.inbox) == ("run.0", [])
    [row] = await ask(turns, note_wait(claim, on_run("a", "w2")))
    assert row.payload == "1"


async def test_j6_a_signal_that_is_given_back_wakes_the_task_that_waits_for_it(turns: Any) -> None:
    task, other = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_wait(task, on_run("a", "w1")))
    await turns.run(note_wait(other, on_run("a", "w2")))
    await turns.run(send("a", "1"))
    await turns.run(linger(other))
    [claim] = (await turns.run(end(task), claim=workers())).claims[:1]
    assert (claim.id, [row.payload for row in claim.inbox]) == ("run.1", ["1"])


async def test_j6_an_item_of_a_map_receives_signals_of_the_run_and_gives_them_back_to_it(turns: Any) -> None:
    mapped, other = await running(turns.run, "run", "run.0", "run.1")
    [item] = (await turns.run(tasks(mapped, "run.0.0"), claim=workers())).claims
    await turns.run(note_wait(item, on_run("a", "w1")))
    await turns.run(send("a", "1"))
    assert [row.payload for row in await inbox(turns, item)] == ["1"]
    await turns.run(end(item))
    [row] = await ask(turns, note_wait(other, on_run("a", "w2")))
    assert row.payload == "1"


@pytest.mark.parametrize("how", ["done", "another attempt", "checkpoint"])
async def test_j6_a_signal_that_a_task_consumed_is_not_given_back(turns: Any, how: str) -> None:
    task, other = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(send("a", "1"))
    [row] = await ask(turns, note_wait(task, on_run("a", "w1")))
    seq = row.seq
    match how:
        case "done":
            await turns.run(end(task, seq))
        case "another attempt":
            await turns.run(again(task, seq))
        case _:
            await turns.run(note_state(task, "{}", consume=(seq,), disarm=("w1",), run_id="run"))
    assert await ask(turns, note_wait(other, on_run("a", "w2"))) == [None]


# -- deadlines ---------------------------------------------------------------------------------------


async def test_j6_the_deadline_of_an_executing_task_fires_once_and_only_when_it_has_come(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1", timeout=MINUTE)))
    early, late, second = (note_timeout(task, "w1") for _ in range(3))
    await turns.run(early, sweep=True)
    assert early.result is None
    turns.clock.advance(MINUTE)
    await turns.run(late, sweep=True)
    await turns.run(second)
    assert (late.result.kind, late.result.wait_id) == ("timer", "w1")
    assert second.result == late.result
    await turns.run(send("a", "1"))  # not for the wait that has timed out
    assert [row.kind for row in await inbox(turns, task)] == ["timer"]
    [row] = await ask(turns, note_wait(task, on_run("a", "w2")))
    assert row.payload == "1"


async def test_j6_a_signal_that_came_before_the_deadline_is_the_answer(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1", timeout=MINUTE)))
    turns.clock.advance(MINUTE)
    late = note_timeout(task, "w1")
    await turns.run(late, send("a", "1"))
    assert (late.result.kind, late.result.payload) == ("signal", "1")


async def test_j7_the_deadline_of_a_parked_task_is_that_of_its_first_wait(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(note_wait(task, on_run("a", "w1", timeout=MINUTE)))
    await turns.run(linger(task))
    assert (await turns.run(sweep=True, claim=workers())).claims == []
    turns.clock.advance(MINUTE)
    [claim] = (await turns.run(sweep=True, claim=workers())).claims
    assert [(row.kind, row.wait_id) for row in claim.inbox] == [("timer", "w1")]
