"""Run maps: one task per item of a list. The map is the parent of its items, as a job is the parent of its tasks.

The items run to their end even if one fails, unless the job is `fail_fast`; then the map fails. Its output is the list
of their outputs, in the order of the items.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from hark.model import json
from hark.model.decisions import Arm, CancelChild, Decision, Effect, NewTask, Park, RetryChild
from hark.model.errors import InvalidInput
from hark.model.events import OutcomeType
from hark.model.failures import storable
from hark.model.names import new_id
from hark.programs.expressions import ExpressionError
from hark.programs.expressions.budget import Meter
from hark.programs.jobs.new_tasks import lane_of, limit_templates, limits_of, new_task
from hark.programs.jobs.states import CANCELLED, COMPLETED, FAILED, INVALID, NOT_STARTED, OF_STATUS, PENDING, STARTED
from hark.programs.jobs.task_ids import item_id, last_part
from hark.programs.jobs.tasks import gates
from hark.programs.jobs.tasks.task_state import TaskState, dump_task_state, restarted

if TYPE_CHECKING:
    from hark.programs.jobs.job_services import TaskOutput
    from hark.programs.jobs.tasks.step_tasks import StepTask

_LETTERS = "items"  # in the data of its state: one letter per item
_REFUSED = "refused"  # there too: the first item that could not start, and why
_FAILURES = frozenset((FAILED, CANCELLED, INVALID))
_MAX_ITEMS = 10_000
_MAX_STEPS = 300_000  # of the expressions of one activation, about 0.1 s: other items start when some have ended
_PAUSE_AFTER = 10_000  # steps, so that others of this worker can run
_KEPT_LISTS = 64
# The lists of maps that have items to start, by the wait for their items: a list does not change while its map waits.
# Not by the id of the map: another store, or a later job, may have a map with the same id.
_lists: dict[str, list[Any]] = {}


async def run_map(step: StepTask) -> Decision:
    """Run one activation of a map: take the ends of its items, start further ones, or end it."""
    claim, state = step.claim, step.state
    wait = next((wait.id for wait in claim.waits if wait.kind == "children"), None)
    arm: tuple[Arm, ...] = ()
    if wait is None:
        wait = new_id()
        arm = (Arm("children", wait, "items", answers_each=True),)
    effects: list[Effect] = []
    before: set[int] = set()
    if _LETTERS not in state.data:
        items = await _items(step, wait)
        letters = [PENDING] * len(items)
    else:
        letters = list(state.data[_LETTERS])
        if arm or step.anew:  # the job was retried, or the gate of the map has rejected its output
            rows = await _read_ends(step, letters)
            letters = [_again(item_id(claim.id, n), letter, rows, wait, effects) for n, letter in enumerate(letters)]
            state.data.pop(_REFUSED, None)
            before = {row.seq for row in claim.inbox}  # ends that came before its own, such as of items it cancelled
    consumed = []
    for row in claim.inbox:
        if row.wait_id == wait:
            consumed.append(row.seq)
            number = last_part(row.name)
            if letters[number] == STARTED and row.seq not in before:
                ended = json.load(row.payload)
                letters[number] = OF_STATUS[ended["status"]]
                if letters[number] == INVALID:
                    state.data.setdefault(_REFUSED, (number, ended["error"]))
    fail_fast = step.graph.spec.fail_fast
    if not (fail_fast and _has_failed(letters)):
        await _start(step, letters, wait, effects)
    if fail_fast and _has_failed(letters):
        for number, letter in enumerate(letters):
            if letter == STARTED:
                effects.append(CancelChild(item_id(claim.id, number), "another item has failed"))
                letters[number] = CANCELLED
            elif letter == PENDING:
                letters[number] = NOT_STARTED
    state.data[_LETTERS] = "".join(letters)
    if STARTED in letters:
        move = Park(arm, disarm=())
        label: OutcomeType = "spawn" if effects else "await"
        return Decision(label, step.task.name, dump_task_state(state), move, tuple(consumed), effects=effects)
    _lists.pop(wait, None)
    decision = await _end(step, letters)
    decision.effects = [*effects, *decision.effects]
    return decision


def _has_failed(letters: list[str]) -> bool:
    return not _FAILURES.isdisjoint(letters)


async def _read_ends(step: StepTask, letters: list[str]) -> dict[str, TaskOutput]:
    """Read the ends of items that were running when the map was cancelled, or that cancelled it: some may have ended
    before. Return their rows."""
    unknown = (STARTED, CANCELLED)
    started = {number: item_id(step.claim.id, number) for number, letter in enumerate(letters) if letter in unknown}
    rows = await step.services.outputs(started.values())
    for number, id in started.items():
        row = rows.get(id)
        letters[number] = NOT_STARTED if row is None else OF_STATUS.get(row.status, CANCELLED)
    return rows


def _again(id: str, letter: str, rows: dict[str, TaskOutput], wait: str, effects: list[Effect]) -> str:
    """Run the map again: the items that failed or were cancelled do so in their own rows."""
    if letter in (FAILED, CANCELLED):
        state = restarted(rows[id].status, rows[id].state) if id in rows else None
        effects.append(RetryChild(id, state=state, parent_wait=wait))
        return STARTED
    return PENDING if letter in (NOT_STARTED, INVALID) else letter


async def _items(step: StepTask, wait: str) -> list[Any]:
    """The list. It is computed once per process: the outputs that it comes from do not change."""
    known = _lists.get(wait)
    if known is not None:
        return known
    items = await step.rendered(step.task.over)
    if not isinstance(items, list):
        raise InvalidInput(f"over: the map {step.task.name!r} needs a list, not {json.dump(items)[:100]}.")
    if len(items) > _MAX_ITEMS:
        raise InvalidInput(f"over: the list has {len(items)} items, and a map takes at most {_MAX_ITEMS}.")
    if len(_lists) >= _KEPT_LISTS:
        _lists.pop(next(iter(_lists)))
    _lists[wait] = items
    return items


async def _start(step: StepTask, letters: list[str], wait: str, effects: list[Effect]) -> None:
    """Start as many items as may run at once. An item whose limits cannot be computed has failed; if the job is
    `fail_fast`, no other one starts then."""
    room = step.task.concurrency or len(letters)
    room -= letters.count(STARTED)
    if room <= 0 or PENDING not in letters:
        return
    items = await _items(step, wait)
    templates = limit_templates(step.task)
    scope = None
    if step.task.concurrency_key is not None or step.task.rate_limit is not None:
        scope = await step.scope()
        await scope.read(step.services, templates)
    limits: dict[str, Any] = {}
    new: list[tuple[int, Effect]] = []
    meter, pause_at = Meter(), _PAUSE_AFTER
    runs = STARTED in letters
    for number in range(letters.index(PENDING), len(letters)):
        if len(new) == room or (meter.steps > _MAX_STEPS and (new or runs)):
            break
        if meter.steps > pause_at:
            pause_at = meter.steps + _PAUSE_AFTER
            await asyncio.sleep(0)
        if letters[number] != PENDING:
            continue
        item = items[number]
        if scope is not None:
            try:
                variables = scope.variables(*templates, **{"item": item, step.task.as_: item})
                limits = limits_of(step.task, step.services, variables, meter)
            except (ExpressionError, InvalidInput) as error:
                letters[number] = INVALID
                step.state.data.setdefault(_REFUSED, (number, storable(str(error))))
                if step.graph.spec.fail_fast:
                    return
                continue
        new.append((number, _new_item(step, number, item, wait, limits)))
    for number, effect in new:
        letters[number] = STARTED
        effects.append(effect)


def _new_item(step: StepTask, number: int, item: Any, wait: str, limits: dict[str, Any]) -> NewTask:
    state = step.state
    value = Raw(json.dump(item).encode())
    one = TaskState(
        state.task,
        state.run,
        state.generation,
        state.generations,
        state.inputs,
        value,
        number,
        row_numbers=state.row_numbers,
        absent=state.absent,
    )
    id = item_id(step.claim.id, number)
    return NewTask(new_task(step.claim, step.graph.spec, one, id, lane_of(step.task), **limits), wait)


async def _end(step: StepTask, letters: list[str]) -> Decision:
    """End the map: all items have ended."""
    claim = step.claim
    failed = [number for number, letter in enumerate(letters) if letter in (FAILED, INVALID)]
    failed = failed or [number for number, letter in enumerate(letters) if letter == CANCELLED]
    if failed:
        number, error = step.state.data.get(_REFUSED) or (failed[0], None)
        if error is None:
            row = (await step.services.outputs([item_id(claim.id, number)])).get(item_id(claim.id, number))
            error = (row.error if row is not None else None) or "no reason was given"
        more = f" ({len(failed)} of {len(letters)} items failed)" if len(failed) > 1 else ""
        return step.fail(f"Item {number} failed: {error}{more}")
    assert all(letter == COMPLETED for letter in letters)
    ids = [item_id(claim.id, number) for number in range(len(letters))]
    rows = await step.services.outputs(ids)
    output = msgspec.json.encode([Raw((rows[id].result or "null").encode()) for id in ids]).decode()
    decision = gates.enter(claim, step.state, step.graph.spec, output)
    decision.consume = tuple(row.seq for row in claim.inbox)
    return decision
