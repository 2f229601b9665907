"""A process is a run, as a job is: its tasks receive its signals and ask under its id (J6, A2)."""

from typing import Any

from hark.kernel.requests import Commit, CommitNote, Deliver, SettleAwakeable
from hark.model.activation import Claim
from hark.model.decisions import Arm, Finish, NewAwakeable, Park, Settle
from hark.model.names import awakeable_id
from hark.model.notes import NoteAwakeable, NoteInbox, NoteWait
from tests.kernel.family import Family, child
from tests.promises.support_signals import outcome
from tests.support.turns import ask


def signal(payload: str) -> Deliver:
    return Deliver(target="p", name="go", payload=payload)


def wait(task: Claim, id: str) -> CommitNote:
    return CommitNote(note=NoteWait(task.id, task.epoch, Arm("signal", id, place=id, name="go", run="p")))


async def inbox(family: Family, task: Claim) -> list[str]:
    [found] = await ask(family.turns, CommitNote(note=NoteInbox(task.id, task.epoch)))
    return [row.payload for row in found]


async def test_j6_a_signal_to_a_process_is_received_by_the_task_that_waits_for_it(family: Family) -> None:
    tasks = await family.parked("p.0", "p.1")
    await family.turns.run(wait(tasks["p.1"], "w1"))
    assert await family.claims(signal("1"), signal("2")) == {}, "no signal wakes the process itself"
    assert [await inbox(family, tasks[id]) for id in ("p.0", "p.1")] == [[], ["1"]]
    [late] = await ask(family.turns, wait(tasks["p.0"], "w2"))
    assert late.payload == "2"


async def test_j6_a_signal_that_a_task_did_not_use_goes_back_to_its_process(family: Family) -> None:
    tasks = await family.parked("p.0", "p.1")
    await family.turns.run(wait(tasks["p.0"], "w1"))
    await family.turns.run(signal("1"))
    await family.turns.run(outcome(tasks["p.0"], Finish("failed", error="no")))
    [late] = await ask(family.turns, wait(tasks["p.1"], "w2"))
    assert late.payload == "1"


async def test_b6_a_process_is_given_the_answers_to_its_user_tasks_and_no_signal(family: Family) -> None:
    parent = (await family.claims())["p"]
    await family.turns.run(_asking(parent))
    await family.turns.run(signal("1"))
    answer = SettleAwakeable(settle=Settle(awakeable_id("p", 0), "RESOLVED", payload="7"))
    claims = await family.claims(answer)
    assert [(row.kind, row.name) for row in claims["p"].inbox] == [("awakeable", awakeable_id("p", 0))]


async def test_a2_what_a_process_and_its_tasks_ask_has_different_numbers(family: Family) -> None:
    parent = (await family.claims())["p"]
    task = (await family.claims(_asking(parent, effects=[child("p.0")])))["p.0"]
    notes = [CommitNote(note=NoteAwakeable(task.id, task.epoch, "p", f"awakeable#0.{n}")) for n in range(2)]
    assert [made.id for made in await ask(family.turns, *notes)] == [awakeable_id("p", (1 << 30) + n) for n in range(2)]


def _asking(parent: Claim, **options: Any) -> Commit:
    """The process has a user task, and waits for its answer and its children."""
    id = awakeable_id("p", 0)
    arms = (Arm("awakeable", "w-user", "user#1", id), Arm("children", "w-ends", "ends", answers_each=True))
    return outcome(parent, Park(arms, disarm=(), awakeables=(NewAwakeable(id, 0, place="user#1"),)), **options)
