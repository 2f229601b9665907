"""V4: live processes move to another version, element by element; what cannot be moved is refused with its reason."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hark import InvalidMigration
from hark.app.drawings import draw_instance
from hark.model.activation import Claim
from hark.model.migration import Migrated
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.bpmn.interpreter.instance_state import (
    BpmnScope,
    BpmnState,
    FlowToken,
    PendingAction,
    dump_bpmn_state,
    load_bpmn_state,
)
from hark.programs.bpmn.interpreter.process_migration import migrate_process
from hark.testing import Harness
from hark.views import live
from tests.bpmn.small_files import bpmn_file, chain, read
from tests.support.claims import a_claim

AROUND = (
    '<signal id="sig" name="go"/><signal id="other" name="stop"/><message id="msg" name="paid"/>'
    '<message id="new" name="billed"/><error id="err" errorCode="oops"/>'
)
SIGNAL = '<signalEventDefinition signalRef="sig"/>'
OTHER = '<signalEventDefinition signalRef="other"/>'
MESSAGE = '<messageEventDefinition messageRef="msg"/>'
TIMER = "<timerEventDefinition><timeDuration>PT{}</timeDuration></timerEventDefinition>"
CYCLE = "<timerEventDefinition><timeCycle>R/PT1H</timeCycle></timerEventDefinition>"
CONDITION = "<conditionalEventDefinition><condition>${{{}}}</condition></conditionalEventDefinition>"


def file(*nodes: str, more: str = "") -> str:
    return bpmn_file(chain(*nodes) + more, around=AROUND, attributes='isExecutable="true"')


def user(id: str = "ask") -> str:
    return f'<userTask id="{id}"/>'


def catch(id: str, definition: str) -> str:
    return f'<intermediateCatchEvent id="{id}">{definition}</intermediateCatchEvent>'


def boundary(id: str, host: str, definition: str, *, interrupting: bool = True) -> str:
    """A boundary event that leads to the user task `{id}_task`."""
    cancel = "true" if interrupting else "false"
    return (
        f'<boundaryEvent id="{id}" attachedToRef="{host}" cancelActivity="{cancel}">{definition}</boundaryEvent>'
        f'<userTask id="{id}_task"/><sequenceFlow id="{id}_flow" sourceRef="{id}" targetRef="{id}_task"/>'
    )


def event_subprocess(id: str, definition: str, *, interrupting: bool = False) -> str:
    """An event sub-process with the user task `{id}_task`."""
    cancel = "true" if interrupting else "false"
    return (
        f'<subProcess id="{id}" triggeredByEvent="true"><startEvent id="{id}_start" isInterrupting="{cancel}">'
        f'{definition}</startEvent><userTask id="{id}_task"/>'
        f'<sequenceFlow id="{id}_flow" sourceRef="{id}_start" targetRef="{id}_task"/></subProcess>'
    )


def subprocess(id: str, *nodes: str, more: str = "", tag: str = "subProcess") -> str:
    """A sub-process with these nodes in a chain."""
    inner = chain(*nodes)
    for own in ("s", "e", "f1", "f2", "f3"):
        inner = inner.replace(f'"{own}"', f'"{id}_{own}"')
    return f'<{tag} id="{id}">{inner}{more}</{tag}>'


async def start(app: Harness, text: str, **variables: Any) -> Any:
    """Version 1 of the process `p`, and an instance of it that rests."""
    await app.deploy(text)
    started = await app.start("p", variables, id="i")
    await app.drain()
    return started


async def move(app: Harness, text: str, **elements: str) -> None:
    """Move the instance to a new version with this text."""
    [(_, version)] = await app.deploy(_shifted(text))
    await app.migrate("i", to_version=version, elements=elements)
    await app.drain()
    assert (await app.get("i")).version == version


def _shifted(text: str) -> str:
    """The file with further nodes and a flow before all others, so that no element keeps its number."""
    start = "<timerEventDefinition><timeDate>2999-01-01T00:00:00Z</timeDate></timerEventDefinition>"
    more = f'<startEvent id="x1">{start}</startEvent><endEvent id="x2"/>{_flow("x1", "x2")}'
    return re.sub(r'(<process id="p"[^>]*>)', rf"\1{more}", text)


async def tokens(app: Harness) -> list[str]:
    return sorted((await app.get("i")).state["tokens"])


async def answer(app: Harness, task: str, value: Any = None) -> None:
    [one] = [one for one in await app.awakeables(status="PENDING") if one.task == task]
    await app.resolve(one.id, value or {})
    await app.drain()


async def refused(app: Harness, text: str, **elements: str) -> list[str]:
    """The reasons why the instance cannot be moved to a new version with this text; it is as it was."""
    before = await app.get("i")
    [(_, version)] = await app.deploy(text)
    with pytest.raises(InvalidMigration) as caught:
        await app.migrate("i", to_version=version, elements=elements)
    await app.drain()
    after = await app.get("i")
    assert (after.version, after.state) == (before.version, before.state)
    return [f"{one.element}: {one.message}" for one in caught.value.problems]


# -- tokens ------------------------------------------------------------------------------------------


async def test_v4_a_user_task_keeps_its_question_and_goes_on_in_the_new_version(app: Harness) -> None:
    await start(app, file(user("ask")), order=7)
    [before] = await app.awakeables(status="PENDING")
    await move(app, file(user("approve"), user("then")), ask="approve")
    [after] = await app.awakeables(status="PENDING")
    assert (after.id, after.task, after.title) == (before.id, "approve", before.title)
    assert [wait.place.partition("#")[0] for wait in (await app.get("i")).waits] == ["approve"]
    await answer(app, "approve", {"ok": True})
    assert await tokens(app) == ["then"]
    await answer(app, "then")
    done = await app.get("i")
    assert (done.status, done.version, done.result) == ("done", 2, {"order": 7, "ok": True})


async def test_v4_an_element_that_is_gone_has_to_be_named(app: Harness) -> None:
    await start(app, file(user("ask")))
    [reason] = await refused(app, file(user("approve")))
    assert reason == (
        "ask: the instance is at this user task, and the new version does not have it: name the user task that it "
        "becomes"
    )


async def test_v4_an_element_becomes_one_of_its_own_kind(app: Harness) -> None:
    await start(app, file(user("ask")))
    [reason] = await refused(app, file('<receiveTask id="ask" messageRef="msg"/>'))
    assert reason == (
        "ask: it is a user task, and 'ask' of the new version is a receive task: an element becomes one of its own kind"
    )


async def test_v4_an_element_without_an_id_does_not_become_another_one_at_its_line(app: Harness) -> None:
    one, other = (file(f'<subProcess id="sub"><userTask name="{name}"/></subProcess>') for name in ("Approve", "Pay"))
    await start(app, one)
    assert await tokens(app) == ["sub", "userTask@4"]
    [reason] = await refused(app, other)
    assert "it has no id in the file: name the user task that it becomes" in reason
    await move(app, other, **{"userTask@4": "userTask@4"})
    assert await tokens(app) == ["sub", "userTask@4"]


async def test_v4_names_that_neither_version_has_are_refused(app: Harness) -> None:
    await start(app, file(user("ask")))
    assert await refused(app, file(user("ask"), user("then")), aks="ask", ask="approve") == [
        "aks: the version that the instance has does not have this element. Did you mean 'ask'?",
        "ask: the new version has no element 'approve'.",
    ]


async def test_v4_a_problem_names_the_line_of_the_new_version(app: Harness) -> None:
    await start(app, file(user("ask")))
    await app.deploy(file('<task id="first"/>', '<receiveTask id="ask" messageRef="msg"/>'))
    with pytest.raises(InvalidMigration) as caught:
        await app.migrate("i", to_version=2)
    assert [one.line for one in caught.value.problems] == [5]


def test_v4_a_process_that_has_not_begun_moves_freely() -> None:
    old, new = _graph(file(user("ask"))), _graph(file(user("approve")))
    moved = migrate_process(old, new, a_claim(step="start", state='{"order":7}'), {})
    assert moved == Migrated(step="start", state='{"order":7}')


def test_v4_a_process_that_has_not_begun_keeps_its_start_event() -> None:
    def starts(id: str) -> BpmnGraph:
        return _graph(file(user(), more=f'<startEvent id="{id}">{MESSAGE}</startEvent>{_flow(id, "ask")}'))

    claim = a_claim(step="start:paid")
    assert migrate_process(starts("paid"), starts("paid2"), claim, {"paid": "paid2"}).step == "start:paid2"
    with pytest.raises(InvalidMigration, match="the instance is at this message start event"):
        migrate_process(starts("paid"), starts("paid2"), claim, {})
    only = _graph(bpmn_file(f'<startEvent id="m">{MESSAGE}</startEvent>{user()}{_flow("m", "ask")}', around=AROUND))
    with pytest.raises(InvalidMigration, match="no start event without a trigger"):
        migrate_process(starts("paid"), only, a_claim(step="start"), {})


def _graph(text: str) -> BpmnGraph:
    [spec] = read(text).processes
    return BpmnGraph(spec)


def _flow(source: str, target: str) -> str:
    return f'<sequenceFlow id="{source}_{target}" sourceRef="{source}" targetRef="{target}"/>'


async def test_v4_a_message_keeps_the_name_and_key_with_which_it_was_armed(app: Harness) -> None:
    await start(app, file(catch("wait", MESSAGE)))
    await move(app, file(catch("wait2", '<messageEventDefinition messageRef="new"/>'), user()), wait="wait2")
    [wait] = [wait for wait in await app.waits() if wait.kind == "message"]
    assert (wait.name, wait.place.partition("#")[0]) == ("paid", "wait2")
    await app.message("paid", "i", {"sum": 3})
    await app.drain()
    assert await tokens(app) == ["ask"]
    assert (await app.get("i")).state["variables"] == {"sum": 3}


async def test_v4_a_receive_task_keeps_its_message(app: Harness) -> None:
    await start(app, file('<receiveTask id="wait" messageRef="msg"/>'))
    await move(app, file('<receiveTask id="wait" messageRef="new"/>', user()))
    await app.message("paid", "i", {"sum": 3})
    await app.drain()
    assert await tokens(app) == ["ask"]


async def test_v4_a_catch_event_becomes_one_of_the_same_event(app: Harness) -> None:
    await start(app, file(catch("wait", MESSAGE)))
    [reason] = await refused(app, file(catch("wait", SIGNAL)))
    assert reason.startswith(
        "wait: it is a message intermediate catch event, and 'wait' of the new version is a signal intermediate"
    )


async def test_v4_a_timer_keeps_its_due_date(app: Harness) -> None:
    await start(app, file(catch("wait", TIMER.format("1H"))))
    await app.advance(3000)
    await move(app, file(catch("pause", TIMER.format("9H")), user()), wait="pause")
    await app.advance(601)
    await app.drain()
    assert await tokens(app) == ["ask"]


async def test_v4_a_changed_condition_is_looked_at_when_the_process_moves(app: Harness) -> None:
    await start(app, file(catch("wait", CONDITION.format("x > 5"))), x=1)
    await move(app, file(catch("wait", CONDITION.format("x > 0")), user()))
    assert await tokens(app) == ["ask"]


async def test_v4_an_equal_condition_waits_on(app: Harness) -> None:
    await start(app, file(catch("wait", CONDITION.format("x > 5"))), x=1)
    await move(app, file(catch("wait2", CONDITION.format("x > 5")), user()), wait="wait2")
    assert await tokens(app) == ["wait2"]
    await app.set_variables("i", {"x": 6})
    await app.drain()
    assert await tokens(app) == ["ask"]


async def test_v4_a_signal_event_keeps_its_wait_and_what_is_in_the_inbox_for_it(app: Harness) -> None:
    await start(app, file(catch("wait", SIGNAL)))
    moved = _graph(file(catch("wait2", OTHER), user()))
    claim = await _claim(app)
    [catcher] = load_bpmn_state(claim.state).catchers
    found = migrate_process(_graph(file(catch("wait", SIGNAL))), moved, claim, {"wait": "wait2"})
    assert [(each.id, each.name) for each in load_bpmn_state(found.state).catchers] == [(catcher.id, "go")]
    assert (found.moved_waits, found.dropped_waits) == (((f"i~{catcher.id}", f"wait2#{catcher.token}"),), ())


# -- boundary events ---------------------------------------------------------------------------------


async def test_v4_a_new_boundary_event_is_waited_for(app: Harness) -> None:
    await start(app, file(user()))
    await move(app, file(user(), more=boundary("late", "ask", TIMER.format("1H"))))
    await app.advance(3601)
    await app.drain()
    assert await tokens(app) == ["late_task"]


async def test_v4_a_boundary_event_that_is_gone_does_not_fire(app: Harness) -> None:
    await start(app, file(user(), more=boundary("stop", "ask", SIGNAL)))
    await move(app, file(user()))
    assert await app.waits(kind="broadcast") == []
    await app.broadcast("go")
    await app.drain()
    assert await tokens(app) == ["ask"]


async def test_v4_a_boundary_event_keeps_its_due_date(app: Harness) -> None:
    await start(app, file(user(), more=boundary("late", "ask", TIMER.format("5H"))))
    await app.advance(4 * 3600)
    await move(app, file(user("ask2"), more=boundary("late", "ask2", TIMER.format("9H"))), ask="ask2")
    await app.advance(3601)
    await app.drain()
    assert await tokens(app) == ["late_task"]


async def test_v4_a_boundary_event_that_becomes_nothing_is_waited_for_anew(app: Harness) -> None:
    await start(app, file(user(), more=boundary("late", "ask", TIMER.format("5H"))))
    await app.advance(4 * 3600)
    await move(app, file(user(), more=boundary("late", "ask", TIMER.format("9H"))), late="")
    await app.advance(8 * 3600)
    await app.drain()
    assert await tokens(app) == ["ask"]
    await app.advance(3601)
    await app.drain()
    assert await tokens(app) == ["late_task"]


async def test_v4_a_boundary_event_of_another_kind_replaces_the_one_with_its_id(app: Harness) -> None:
    await start(app, file(user(), more=boundary("on", "ask", SIGNAL)))
    await move(app, file(user(), more=boundary("on", "ask", MESSAGE)))
    assert [wait.kind for wait in await app.waits() if wait.kind != "awakeable"] == ["message"]
    [reason] = await refused(app, file(user(), more=boundary("on", "ask", TIMER.format("1H"))), on="on")
    assert reason.startswith("on: it is a message boundary event, and 'on' of the new version is a timer boundary")


async def test_v4_a_boundary_event_stays_with_what_its_host_becomes(app: Harness) -> None:
    await start(app, file(user("a"), user("b"), more=boundary("on", "a", SIGNAL)))
    other = file(user("a"), user("b"), user("c"), more=boundary("on", "b", SIGNAL))
    [reason] = await refused(app, other, on="on")
    assert reason == "on: it is attached to 'a', which does not become 'b', to which 'on' is attached"
    await move(app, other)
    assert await app.waits(kind="broadcast") == []


async def test_v4_two_boundary_events_do_not_become_one(app: Harness) -> None:
    two = boundary("on", "ask", SIGNAL) + boundary("off", "ask", OTHER)
    await start(app, file(user(), more=two))
    [reason] = await refused(app, file(user(), more=boundary("on", "ask", SIGNAL)), off="on", on="on")
    assert reason.endswith("becomes 'on' too: an event can be kept once")


async def test_v4_a_boundary_event_that_has_fired_does_not_fire_again(app: Harness) -> None:
    late = boundary("late", "ask", TIMER.format("1H"), interrupting=False)
    await start(app, file(user(), more=late))
    await app.advance(3601)
    await app.drain()
    await move(app, file(user(), user("then"), more=late))
    await app.advance(36000)
    await app.drain()
    assert await tokens(app) == ["ask", "late_task"]


async def test_v4_a_boundary_event_may_stop_to_interrupt(app: Harness) -> None:
    await start(app, file(user(), more=boundary("on", "ask", SIGNAL)))
    await move(app, file(user(), more=boundary("on", "ask", SIGNAL, interrupting=False)))
    for _ in range(3):
        await app.broadcast("go")
        await app.drain()
    assert await tokens(app) == ["ask", "on_task", "on_task", "on_task"]


async def test_v4_a_boundary_event_may_begin_to_interrupt(app: Harness) -> None:
    await start(app, file(user(), more=boundary("on", "ask", SIGNAL, interrupting=False)))
    await move(app, file(user(), more=boundary("on", "ask", SIGNAL)))
    await app.broadcast("go")
    await app.drain()
    assert await tokens(app) == ["on_task"]


async def test_v4_a_cycle_goes_on_in_step(app: Harness) -> None:
    every = boundary("every", "ask", CYCLE, interrupting=False)
    await start(app, file(user(), more=every))
    await app.advance(5400)
    await app.drain()
    await move(app, file(user(), user("then"), more=every))
    await app.advance(1801)
    await app.drain()
    assert await tokens(app) == ["ask", "every_task", "every_task"]
    await move(app, file(user(), more=boundary("every", "ask", TIMER.format("1M"), interrupting=False)))
    await app.advance(61)
    await app.drain()
    assert (await tokens(app)).count("every_task") == 3


async def test_v4_a_new_condition_that_holds_interrupts_at_once(app: Harness) -> None:
    await start(app, file(user()), x=1)
    more = boundary("on", "ask", CONDITION.format("x == 1")) + boundary("late", "ask", TIMER.format("1H"))
    await move(app, file(user(), more=more))
    assert await tokens(app) == ["on_task"]
    assert [wait.kind for wait in await app.waits() if wait.kind != "awakeable"] == []


async def test_v4_a_new_event_that_cannot_be_waited_for_fails_the_process_until_a_retry(app: Harness) -> None:
    await start(app, file(user()))
    on = boundary("on", "ask", "<timerEventDefinition><timeDuration>${pause}</timeDuration></timerEventDefinition>")
    await move(app, file(user(), more=on))
    failed = await app.get("i")
    assert failed.status == "failed"
    assert "the event 'on'" in str(failed.error)
    await app.set_variables("i", {"pause": "PT1H"})
    await app.retry("i")
    await app.drain()
    await app.advance(3601)
    await app.drain()
    assert await tokens(app) == ["on_task"]


async def test_v4_an_event_that_could_not_be_waited_for_is_corrected_by_a_further_version(app: Harness) -> None:
    await start(app, file(user()))
    on = "<timerEventDefinition><timeDuration>${pause}</timeDuration></timerEventDefinition>"
    await move(app, file(user(), more=boundary("on", "ask", on)))
    await move(app, file(user("ask2"), more=boundary("on2", "ask2", TIMER.format("1H"))), ask="ask2", on="on2")
    await app.retry("i")
    await app.drain()
    assert await tokens(app) == ["ask2"]
    await app.advance(3601)
    await app.drain()
    assert await tokens(app) == ["on2_task"]


async def test_v4_a_second_migration_before_the_next_activation_arms_what_the_last_version_has(app: Harness) -> None:
    one = file(user(), more=boundary("kept", "ask", OTHER))
    await start(app, one)
    two = file(user(), more=boundary("kept", "ask", OTHER, interrupting=False) + boundary("on", "ask", SIGNAL))
    more = boundary("on2", "ask2", SIGNAL) + boundary("late", "ask2", TIMER.format("1H"))
    three = file(user("ask2"), more=more + event_subprocess("extra", MESSAGE))
    first, second = _graph(two), _graph(three)
    claim = await _claim(app)
    claim.state = migrate_process(_graph(one), first, claim, {}).state
    added = load_bpmn_state(claim.state).unarmed
    assert [(first.ids[each.node], bool(each.catcher)) for each in added] == [("kept", True), ("on", False)]
    moved = migrate_process(first, second, claim, {"ask": "ask2", "on": "on2"})
    added = load_bpmn_state(moved.state).unarmed
    assert [(second.ids[each.node], each.catcher) for each in added] == [("on2", 0), ("late", 0), ("extra_start", 0)]
    [catcher] = [each for each in load_bpmn_state(claim.state).catchers if each.kind == "broadcast"]
    assert moved.dropped_waits == (f"i~{catcher.id}",)


async def _claim(app: Harness) -> Claim:
    """The instance, as a migration reads it."""
    [(claim, _)] = await app._read(lambda store: live.movable(store, ["i"]))
    return claim


# -- catch events with boundary events, and events with several definitions ----------------------------


@pytest.mark.parametrize("before", ["", boundary("late", "wait", SIGNAL)], ids=["new", "replaced"])
async def test_v4_a_boundary_event_of_a_catch_event_is_waited_for(app: Harness, before: str) -> None:
    await start(app, file(catch("wait", MESSAGE), more=before))
    await move(app, file(catch("wait", MESSAGE), more=boundary("late", "wait", TIMER.format("5S"))))
    await app.advance(5)
    await app.drain()
    assert await tokens(app) == ["late_task"]


async def test_v4_an_event_with_several_definitions_gets_another_name(app: Harness) -> None:
    both = MESSAGE + TIMER.format("5S")
    await start(app, file(catch("wait", both)))
    await app.advance(3)
    await move(app, file(catch("wait2", both), user()), wait="wait2")
    await app.advance(2)
    await app.drain()
    assert await tokens(app) == ["ask"]


@pytest.mark.parametrize("swap", [False, True])
async def test_v4_a_catch_event_keeps_the_number_of_its_definitions(app: Harness, swap: bool) -> None:
    files = [file(catch("wait", MESSAGE)), file(catch("wait", MESSAGE + TIMER.format("5S")))]
    before, after = files[::-1] if swap else files
    await start(app, before)
    was, now = (2, 1) if swap else (1, 2)
    [reason] = await refused(app, after)
    assert reason == f"wait: it waits for {was} event definitions, and 'wait' of the new version has {now}"


@pytest.mark.parametrize(("target", "id", "rests"), [("late2", "late2", "late2_task"), ("", "late", "ask")])
async def test_v4_all_definitions_of_a_boundary_event_become_what_it_becomes(
    app: Harness, target: str, id: str, rests: str
) -> None:
    both = SIGNAL + TIMER.format("5S")
    await start(app, file(user(), more=boundary("late", "ask", both)))
    await app.advance(3)
    await move(app, file(user(), more=boundary(id, "ask", both)), late=target)
    await app.advance(2)
    await app.drain()
    assert await tokens(app) == [rests]


# -- event sub-processes and sub-processes -----------------------------------------------------------


async def test_v4_a_new_event_subprocess_can_begin(app: Harness) -> None:
    await start(app, file(user()))
    await move(app, file(user(), more=event_subprocess("extra", SIGNAL)))
    await app.broadcast("go")
    await app.drain()
    assert await tokens(app) == ["ask", "extra", "extra_task"]


async def test_v4_an_event_subprocess_keeps_what_it_waits_for(app: Harness) -> None:
    await start(app, file(user(), more=event_subprocess("extra", MESSAGE)))
    new = event_subprocess("more", '<messageEventDefinition messageRef="new"/>', interrupting=True)
    await move(app, file(user(), more=new), extra="more", extra_start="more_start")
    await app.message("paid", "i")
    await app.drain()
    assert await tokens(app) == ["more", "more_task"]


async def test_v4_an_event_subprocess_that_is_gone_does_not_begin(app: Harness) -> None:
    await start(app, file(user(), more=event_subprocess("extra", SIGNAL)))
    await move(app, file(user()))
    assert await app.waits(kind="broadcast") == []


async def test_v4_no_event_subprocess_begins_after_one_has_interrupted(app: Harness) -> None:
    await start(app, file(user(), more=event_subprocess("extra", SIGNAL, interrupting=True)))
    await app.broadcast("go")
    await app.drain()
    both = event_subprocess("extra", SIGNAL, interrupting=True) + event_subprocess("more", OTHER)
    await move(app, file(user(), more=both))
    assert await app.waits(kind="broadcast") == []
    assert await tokens(app) == ["extra", "extra_task"]


async def test_v4_a_token_stays_in_its_subprocess(app: Harness) -> None:
    await start(app, file(subprocess("sub", user())))
    [reason] = await refused(app, file(user(), subprocess("sub", '<task id="x"/>')))
    assert reason == (
        "ask: it is in 'sub', which becomes 'sub', and 'ask' is in the process: a token stays in the sub-processes "
        "that it is in"
    )
    reasons = await refused(app, file(user()))
    assert reasons[0].startswith("sub: the instance is at this sub-process, and the new version does not have it")
    assert reasons[1] == "ask: it is in 'sub', which the new version does not have: name what that becomes"
    outside = file(user(), subprocess("sub", user("ask2")))
    await move(app, file(subprocess("outer", user("ask"), user("then"))), sub="outer")
    await answer(app, "ask")
    assert await tokens(app) == ["outer", "then"]
    assert len(await refused(app, outside, then="ask", outer="sub")) == 1


async def test_v4_a_subprocess_does_not_become_a_transaction(app: Harness) -> None:
    await start(app, file(subprocess("sub", user())))
    [reason] = await refused(app, file(subprocess("sub", user(), tag="transaction")))
    assert reason.startswith("sub: it is a sub-process, and 'sub' of the new version is a transaction")


async def test_v4_a_subprocess_gets_new_events_inside_and_on_its_boundary(app: Harness) -> None:
    await start(app, file(subprocess("sub", user())))
    inside = event_subprocess("extra", SIGNAL)
    await move(app, file(subprocess("sub", user(), more=inside), more=boundary("on", "sub", OTHER)))
    await app.broadcast("go")
    await app.drain()
    assert await tokens(app) == ["ask", "extra", "extra_task", "sub"]
    await app.broadcast("stop")
    await app.drain()
    assert await tokens(app) == ["on_task"]


async def test_v4_an_error_is_caught_by_a_new_boundary_event(app: Harness) -> None:
    throws = '<endEvent id="sub_e"><errorEventDefinition errorRef="err"/></endEvent>'
    one = subprocess("sub", user()).replace('<endEvent id="sub_e"/>', throws)
    await start(app, file(one))
    await move(app, file(one, more=boundary("caught", "sub", '<errorEventDefinition errorRef="err"/>')))
    await answer(app, "ask")
    assert await tokens(app) == ["caught_task"]


# -- multi-instance ----------------------------------------------------------------------------------


def many(id: str, times: int, *, sequential: bool = False) -> str:
    flag = "true" if sequential else "false"
    loop = f'<multiInstanceLoopCharacteristics isSequential="{flag}"><loopCardinality>{times}</loopCardinality>'
    return f'<userTask id="{id}">{loop}</multiInstanceLoopCharacteristics></userTask>'


async def _answer_one(app: Harness) -> None:
    [one, *_] = sorted(await app.awakeables(status="PENDING"), key=lambda one: one.entry_index)
    await app.resolve(one.id, {})
    await app.drain()


@pytest.mark.parametrize("sequential", [False, True])
async def test_v4_a_multi_instance_goes_on_with_its_counters(app: Harness, sequential: bool) -> None:
    await start(app, file(many("ask", 3, sequential=sequential)))
    await _answer_one(app)
    new = many("each", 9, sequential=sequential)
    await move(app, file(new, user("then"), more=boundary("on", "each", SIGNAL)), ask="each")
    assert len(await app.waits(kind="broadcast")) == 1
    await _answer_one(app)
    assert set(await tokens(app)) == {"each"}
    await _answer_one(app)
    assert await tokens(app) == ["then"]


async def test_v4_a_loop_that_has_repeated_more_often_than_it_may_now_ends(app: Harness) -> None:
    loop = '<userTask id="ask"><standardLoopCharacteristics loopMaximum="{}"/></userTask>'
    await start(app, file(loop.format(9), user("then")))
    for _ in range(3):
        await answer(app, "ask")
    await move(app, file(loop.format(2), user("then")))
    await answer(app, "ask")
    assert await tokens(app) == ["then"]


async def test_v4_a_multi_instance_keeps_its_sort(app: Harness) -> None:
    await start(app, file(many("ask", 3)))
    [reason] = await refused(app, file(many("ask", 3, sequential=True)))
    assert reason.startswith("ask: it is a parallel multi-instance user task, and 'ask' of the new version is a sequ")
    [reason] = await refused(app, file(user("ask")))
    assert reason.startswith("ask: it is a parallel multi-instance user task, and 'ask' of the new version is a user t")
    over = '<multiInstanceLoopCharacteristics camunda:collection="list"/>'
    [reason] = await refused(app, file(f'<userTask id="ask">{over}</userTask>'))
    assert reason == "ask: only one of it and 'ask' of the new version repeats over a collection"


# -- gateways ----------------------------------------------------------------------------------------


def fork(*branches: str, tag: str = "parallelGateway", join: str = "join", prefix: str = "") -> str:
    """A fork into user tasks, and the join behind them with the user task `end`."""
    parts = [f'<startEvent id="s"/><{tag} id="fork"/><{tag} id="{join}"/>{user("end")}', _flow("s", "fork")]
    for branch in branches:
        parts += [user(branch), _flow("fork", branch)]
        parts.append(f'<sequenceFlow id="{prefix}{branch}_in" sourceRef="{branch}" targetRef="{join}"/>')
    return bpmn_file("".join([*parts, _flow(join, "end")]), around=AROUND)


@pytest.mark.parametrize("tag", ["parallelGateway", "inclusiveGateway", "complexGateway"])
async def test_v4_tokens_wait_on_in_a_join(app: Harness, tag: str) -> None:
    await start(app, fork("a", "b", "c", tag=tag))
    await answer(app, "a")
    await move(app, fork("a", "b", "c", tag=tag, join="join2"), join="join2")
    assert await tokens(app) == ["b", "c", "join2"]
    await answer(app, "b")
    await answer(app, "c")
    assert await tokens(app) == ["end"]


async def test_v4_a_join_keeps_the_flows_by_which_tokens_came(app: Harness) -> None:
    await start(app, fork("a", "b"))
    await answer(app, "a")
    other = fork("a", "b", prefix="x_")
    assert await refused(app, other) == [
        "join: a token waits in it that came by 'a_in', and the new version has no such flow to 'join': name the flow "
        "that it becomes"
    ]
    await move(app, other, a_in="x_a_in")
    await answer(app, "b")
    assert await tokens(app) == ["end"]


async def test_v4_a_join_needs_as_many_incoming_flows(app: Harness) -> None:
    await start(app, fork("a", "b", "c"))
    await answer(app, "a")
    await answer(app, "b")
    fewer = fork("a", "b").replace(
        '<parallelGateway id="fork"/>', f'<parallelGateway id="fork"/>{user("c")}{_flow("c", "end")}'
    )
    assert await refused(app, fewer.replace(_flow("fork", "b"), _flow("fork", "b") + _flow("fork", "c"))) == [
        "join: tokens wait in it, and 'join' of the new version has 2 incoming flows instead of 3: it needs at least "
        "as many"
    ]


async def test_v4_tokens_that_came_by_two_flows_do_not_come_by_one(app: Harness) -> None:
    await start(app, fork("a", "b", "c"))
    await answer(app, "a")
    await answer(app, "b")
    [reason] = await refused(app, fork("a", "b", "c", "d"), a_in="b_in")
    assert reason == "join: tokens wait in it that came by 'b_in' and 'a_in', which become one"


async def test_v4_an_inclusive_join_goes_on_when_the_new_version_sends_no_further_token(app: Harness) -> None:
    await start(app, fork("a", "b", tag="inclusiveGateway"))
    await answer(app, "a")
    text = fork("a", "b", tag="inclusiveGateway")
    away = text.replace('id="b_in" sourceRef="b"', 'id="b_in" sourceRef="x"')
    away = away.replace(user("b"), user("b") + user("x") + _flow("fork", "x"))
    await move(app, away)
    assert await tokens(app) == ["b", "end"]


def race(*events: str) -> str:
    """An event gateway, with these events behind it, and the user task `end` behind each."""
    parts = [f'<startEvent id="s"/><eventBasedGateway id="race"/>{user("end")}', _flow("s", "race")]
    definitions = {"on": SIGNAL, "paid": MESSAGE, "late": TIMER.format("1H"), "off": OTHER, "on2": SIGNAL}
    for event in events:
        parts += [catch(event, definitions[event]), _flow("race", event), _flow(event, "end")]
    return bpmn_file("".join(parts), around=AROUND)


async def test_v4_an_event_gateway_keeps_what_it_waits_for(app: Harness) -> None:
    await start(app, race("on", "late"))
    await move(app, race("late", "on2"), on="on2")
    assert await tokens(app) == ["race"]
    await app.broadcast("go")
    await app.drain()
    assert await tokens(app) == ["end"]
    assert await app.waits(kind="timer") == []


async def test_v4_an_event_gateway_becomes_one_with_the_same_events(app: Harness) -> None:
    await start(app, race("on", "late"))
    others = "the instance waits for its events, and 'race' of the new version has others: "
    assert await refused(app, race("on", "late", "paid")) == [f"race: {others}'on', 'late', 'paid'"]
    [reason] = await refused(app, race("on"))
    assert reason.startswith("late: the instance is at this timer intermediate catch event, and the new version does")


# -- compensation, incidents, children ---------------------------------------------------------------


def undoable(id: str, *, handler: str | None = "undo") -> str:
    """A user task, and the user task that compensates it."""
    if handler is None:
        return user(id)
    return (
        f'{user(id)}<userTask id="{handler}" isForCompensation="true"/><boundaryEvent id="{id}_on" '
        f'attachedToRef="{id}"><compensateEventDefinition/></boundaryEvent>'
        f'<association id="{id}_by" sourceRef="{id}_on" targetRef="{handler}"/>'
    )


BACK = '<intermediateThrowEvent id="back"><compensateEventDefinition/></intermediateThrowEvent>'


def undo_file(first: str, more: str, second: str = "b") -> str:
    """`first`, the user task `second`, and what has completed is compensated."""
    return file(user(first), user(second), BACK, user("end")).replace(user(first), more)


async def test_v4_what_has_completed_is_compensated_by_the_new_version(app: Harness) -> None:
    await start(app, undo_file("a", undoable("a")))
    await answer(app, "a", {"x": 1})
    new = undo_file("a2", undoable("a2", handler="undo2"), "b2")
    [reason] = await refused(app, new, b="b2")
    assert reason == (
        "a: this user task has completed and can be compensated, and the new version does not have it: name the user "
        "task that it becomes"
    )
    [reason] = await refused(app, undo_file("a", user("a")))
    assert reason == "a: it has completed and can be compensated, and 'a' of the new version has no handler"
    await move(app, new, a="a2", b="b2")
    await answer(app, "b2")
    assert await tokens(app) == ["back", "undo2"]
    last = undo_file("a", undoable("a", handler="undo"))
    assert len(await refused(app, last.replace("</process>", "<!-- --></process>"), a2="a")) == 1
    await move(app, last, a2="a", undo2="undo")
    await answer(app, "undo")
    assert await tokens(app) == ["end"]


async def test_v4_an_incident_moves_with_its_token(app: Harness) -> None:
    def text(condition: str, id: str) -> str:
        nodes = (
            f'<startEvent id="s"/><exclusiveGateway id="{id}"/>{user("yes")}{user("ask")}<parallelGateway id="two"/>'
        )
        flow = f'<conditionExpression xsi:type="tFormalExpression">${{{condition}}}</conditionExpression>'
        flows = f'<sequenceFlow id="f" sourceRef="{id}" targetRef="yes">{flow}</sequenceFlow>'
        return bpmn_file(nodes + _flow("s", "two") + _flow("two", id) + _flow("two", "ask") + flows)

    await start(app, text("amount > 1", "if"))
    assert (await app.get("i")).status == "failed"
    await move(app, text("true", "maybe"), **{"if": "maybe"})
    assert [one["element"] for one in (await app.get("i")).state["incidents"]] == ["maybe"]
    await app.retry("i")
    await app.drain()
    assert await tokens(app) == ["ask", "yes"]


def work(handler: str, id: str = "work") -> str:
    return f'<serviceTask id="{id}" camunda:type="external" camunda:topic="{handler}"/>'


async def test_v4_a_service_task_goes_on_with_its_handler_and_is_retried_with_the_new_one(app: Harness) -> None:
    ran: list[str] = []

    async def old(ctx: Any) -> Any:
        ran.append("old")
        raise ValueError("no")

    async def new(ctx: Any) -> Any:
        ran.append("new")
        return {"by": "new"}

    app.handler("old")(old)
    app.handler("new")(new)
    await app.deploy(file(work("old")))
    await app.start("p", {}, id="i")
    while (await app.get("i")).status != "failed":
        await app.drain()
        await app.advance(3600)
    assert set(ran) == {"old"}
    ran.clear()
    await move(app, file(user("first"), work("new", "work2"), user("then")), work="work2")
    await app.retry("i")
    await app.drain()
    assert ran == ["new"]
    assert await tokens(app) == ["then"]
    assert (await app.get("i")).state["variables"] == {"by": "new"}


async def test_v4_a_called_process_returns_to_what_its_call_activity_becomes(app: Harness) -> None:
    called = bpmn_file(chain(user("inner"))).replace('id="p"', 'id="q"')
    await app.deploy(called)
    await start(app, file('<callActivity id="call" calledElement="q"/>'))
    await move(app, file('<callActivity id="call2" calledElement="other"/>', user("then")), call="call2")
    await answer(app, "inner", {"x": 1})
    assert await tokens(app) == ["then"]
    assert (await app.get("i")).state["variables"] == {"x": 1}


async def test_v4_the_diagram_and_the_coverage_of_a_moved_process_are_those_of_its_version(app: Harness) -> None:
    await start(app, file(user("ask")))
    await move(app, file(user("ask2"), user("then")), ask="ask2")
    await answer(app, "ask2")
    drawing = await app._read(lambda store: draw_instance(store, "i"))
    assert "has-token" in drawing()
    assert (await app.coverage("p", version=1)).taken == ["f1"]
    assert (await app.coverage("p", version=2)).taken == ["f2"]


def test_v4_actions_that_an_activation_has_left_are_done_in_the_new_version() -> None:
    old, new = _graph(file(user("a"))), _graph(file(user("b"), more=boundary("on", "b", SIGNAL)))
    token = FlowToken(1, old.numbers["a"], 0)
    state = BpmnState({}, 1, scopes=[BpmnScope(0, -1, 0, "process")], tokens=[token], work=[PendingAction("enter", 1)])
    moved = migrate_process(old, new, a_claim(step="run", state=dump_bpmn_state(state)), {"a": "b"})
    found = load_bpmn_state(moved.state)
    assert (found.tokens, found.work) == ([FlowToken(1, new.numbers["b"], 0)], state.work)
    assert (found.unarmed, moved.control) == ([], None)  # the token begins to wait for the event when it enters
