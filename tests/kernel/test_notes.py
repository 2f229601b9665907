"""Notes of executing tasks: fenced, many per turn, without an end of the activation."""

from typing import Any

from hark.kernel.requests import AssignAwakeable, Cancel, Commit, HandBack, SettleAwakeable
from hark.model.decisions import Arm, Decision, Finish, Park, Redo, Settle
from hark.model.errors import AlreadyClaimed, AlreadySettled, NotFound, TaskLost
from hark.model.names import awakeable_id
from hark.model.notes import NotedEvent
from tests.support.runs import (
    note_awakeable,
    note_events,
    note_inbox,
    note_run,
    note_runs,
    note_state,
    note_timeout,
    note_wait,
    on_run,
    running,
    workers,
)
from tests.support.turns import MINUTE, ask


def chunk(n: int) -> NotedEvent:
    return NotedEvent("stream", f'{{"task":"t","chunk":{n}}}')


def resolve(id: str, payload: str = "1") -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(id, "RESOLVED", payload=payload))


def wait_for(id: str, wait: str = "w") -> Arm:
    return Arm("awakeable", wait, place=wait, name=id)


async def test_j8_events_and_a_checkpoint_change_neither_epoch_nor_status(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    before = await turns.read("SELECT epoch, status, lease_owner FROM instances WHERE id = 'run.0'")
    beat = NotedEvent("heartbeat", '{"task":"t"}')
    await turns.run(note_events(task, chunk(1), chunk(2), beat, step="t", progress='"half"'))
    await turns.run(note_state(task, '{"n": 2}', events=(NotedEvent("checkpoint", '{"task":"t"}'),)))
    assert await turns.read("SELECT epoch, status, lease_owner FROM instances WHERE id = 'run.0'") == before
    assert await turns.read("SELECT state, progress FROM instances WHERE id = 'run.0'") == [('{"n": 2}', '"half"')]
    found = await turns.read("SELECT type, data FROM events WHERE instance_id = 'run.0' ORDER BY seq")
    assert [type for type, _ in found] == ["started", "stream", "stream", "heartbeat", "checkpoint"]
    assert found[2][1] == '{"task":"t","chunk":2}'


async def test_j8_nothing_of_a_note_is_written_after_the_task_was_lost(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    await turns.run(HandBack(claims=[task]))
    [present] = (await turns.run(claim=workers("other"))).claims
    before = await turns.read("SELECT state, progress FROM instances WHERE id = 'run.0'")
    notes = [
        note_events(task, chunk(1), progress="1"),
        note_state(task, '{"lost": true}'),
        note_wait(task, on_run("a", "w")),
        note_timeout(task, "w"),
        note_inbox(task),
        note_awakeable(task, "awakeable#0"),
        note_run(task, 0),
        note_runs(task),
    ]
    kept = note_events(present, chunk(2))
    await turns.run(*notes, kept)
    assert [type(note.result) for note in notes] == [TaskLost] * 8
    assert notes[0].result.status == "executing"
    assert kept.result is None
    assert await turns.read("SELECT state, progress FROM instances WHERE id = 'run.0'") == before
    assert await turns.read("SELECT count(*) FROM waits WHERE instance_id = 'run.0'") == [(0,)]
    assert await turns.read("SELECT count(*) FROM awakeables") == [(0,)]
    assert await turns.read("SELECT count(*) FROM journal") == [(0,)]
    assert await turns.read("SELECT data FROM events WHERE type = 'stream'") == [('{"task":"t","chunk":2}',)]


async def test_j8_a_cancel_in_the_same_turn_comes_before_a_note(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    [lost, _] = await ask(turns, note_events(task, chunk(1)), Cancel(target="run"))
    assert isinstance(lost, TaskLost)
    assert lost.status == "cancelled"


# -- runs --------------------------------------------------------------------------------------------


async def test_j8_runs_are_read_back_by_task_and_period(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_run(first, 1, '"b"', is_first=True), note_run(second, 0, '"c"', is_first=True))
    await turns.run(note_run(first, 0, '"a"'))
    [mine, none, yours] = await ask(turns, note_runs(first), note_runs(first, 1), note_runs(second))
    assert [(row.seq, row.name, row.value) for row in mine] == [(0, "call", '"a"'), (1, "call", '"b"')]
    assert (none, [row.value for row in yours]) == ([], ['"c"'])


async def test_j8_the_first_run_of_a_period_deletes_those_of_earlier_ones_and_no_others(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    await turns.run(note_run(first, 0, is_first=True), note_run(second, 0, is_first=True))
    await turns.run(note_run(first, 1, period=3, is_first=True))
    # Of another activation in the same period: the first one had a second run that ended before its first.
    await turns.run(note_run(first, 0, period=3, is_first=True))
    found = await turns.read("SELECT instance_id, visit, seq FROM journal ORDER BY 1, 2, 3")
    assert found == [("run.0", 3, 0), ("run.0", 3, 1), ("run.1", 0, 0)]


# -- awakeables --------------------------------------------------------------------------------------


async def test_a2_the_awakeables_of_tasks_are_numbered_per_job_and_contain_its_id(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    notes = [note_awakeable(first, "awakeable#0"), note_awakeable(second, "awakeable#0", task="verify")]
    await turns.run(*notes)
    again = note_awakeable(first, "awakeable#0", title="other")
    third = note_awakeable(first, "awakeable#1")
    await turns.run(again, third)
    assert [note.result.id for note in (*notes, third)] == [awakeable_id("run", n) for n in range(3)]
    assert again.result == notes[0].result


async def test_a3_an_answer_goes_to_the_task_that_asked(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    [asked] = await ask(turns, note_awakeable(second, "awakeable#0"))
    await turns.run(note_wait(second, wait_for(asked.id)))
    answer = resolve(asked.id)
    result = await turns.run(answer)
    assert result.signalled == {"run.1"}
    assert answer.result.instance_id == "run"
    [none, rows] = await ask(turns, note_inbox(first), note_inbox(second))
    assert none == []
    assert [(row.kind, row.name) for row in rows] == [("awakeable", asked.id)]


async def test_a3_an_answer_wakes_the_parked_task_and_not_the_job(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    [asked] = await ask(turns, note_awakeable(task, "awakeable#0"))
    park = Decision("await", "work", "{}", Park((wait_for(asked.id),)))
    await turns.run(Commit(claim=task, decision=park))
    result = await turns.run(resolve(asked.id), claim=workers())
    assert [(claim.id, [row.kind for row in claim.inbox]) for claim in result.claims] == [("run.0", ["awakeable"])]


async def test_fault_44_an_awakeable_that_is_settled_before_the_wait_is_its_answer_even_if_consumed(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    [asked] = await ask(turns, note_awakeable(task, "awakeable#0"))
    await turns.run(resolve(asked.id, '"yes"'))
    [first] = await ask(turns, note_wait(task, wait_for(asked.id, "w1")))
    assert '"yes"' in first.payload
    await turns.run(note_state(task, "{}", consume=(first.seq,), disarm=("w1",), run_id="run"))
    [second] = await ask(turns, note_wait(task, wait_for(asked.id, "w2")))
    assert second.payload == first.payload
    assert second.seq > first.seq


async def test_a3_a_task_cannot_wait_for_the_awakeable_of_another(turns: Any) -> None:
    first, second = await running(turns.run, "run", "run.0", "run.1")
    [asked] = await ask(turns, note_awakeable(first, "awakeable#0"))
    [refused] = await ask(turns, note_wait(second, wait_for(asked.id)))
    assert isinstance(refused, NotFound)


async def test_a4_an_awakeable_of_an_executing_task_times_out(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    [asked] = await ask(turns, note_awakeable(task, "awakeable#0", timeout=MINUTE))
    wait = note_wait(task, wait_for(asked.id))
    await turns.run(wait)
    assert wait.note.arm.deadline == asked.timeout_at
    turns.clock.advance(MINUTE)
    [row] = await ask(turns, note_timeout(task, "w"))
    assert (row.kind, row.payload) == ("awakeable", '{"status":"TIMEOUT"}')
    [settled] = await ask(turns, resolve(asked.id))
    assert settled.status == "TIMEOUT"


async def test_a4_awakeables_end_with_their_task_its_attempt_and_its_job(turns: Any) -> None:
    done, failed, again, cancelled, open = await running(turns.run, "run", *(f"run.{n}" for n in range(5)))
    tasks = (done, failed, again, cancelled, open)
    asked = await ask(turns, *(note_awakeable(task, "awakeable#0") for task in tasks))
    await turns.run(
        Commit(claim=done, decision=Decision("done", "work", "{}", Finish("done"))),
        Commit(claim=failed, decision=Decision("stop", "work", "{}", Finish("failed", error="no"))),
        Commit(claim=again, decision=Decision("retry", "work", "{}", Redo(0, drop_waits=True))),
        Cancel(target="run.3"),
    )
    read = "SELECT status FROM awakeables ORDER BY entry_index"
    assert [status for (status,) in await turns.read(read)] == ["CANCELLED"] * 4 + ["PENDING"]
    await turns.run(Cancel(target="run"))
    assert [status for (status,) in await turns.read(read)] == ["CANCELLED"] * 5
    answers = await ask(turns, *(resolve(one.id) for one in asked))
    assert [type(answer) for answer in answers] == [AlreadySettled] * 5


async def test_b6_an_awakeable_of_a_task_is_claimed_and_the_event_is_that_of_the_task(turns: Any) -> None:
    [task] = await running(turns.run, "run", "run.0")
    [asked] = await ask(turns, note_awakeable(task, "awakeable#0"))
    [taken, refused] = await ask(turns, *(AssignAwakeable(awakeable=asked.id, by=by) for by in ("ann", "bob")))
    assert taken.claimed_by == "ann"
    assert isinstance(refused, AlreadyClaimed)
    assert await turns.read("SELECT instance_id FROM events WHERE type = 'claimed'") == [("run.0",)]
    await turns.run(Commit(claim=task, decision=Decision("done", "t", "{}", Finish("done"))))
    [late] = await ask(turns, AssignAwakeable(awakeable=asked.id))
    assert isinstance(late, AlreadySettled)
