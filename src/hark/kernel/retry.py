"""Retry failed instances: all of an instance, or nothing. Held ones are tried again, processes resume their incidents.

A retry takes back what the failure released: the correlation key, the waits and the awakeables. It is refused when
another instance holds the key or waits for the same message by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import kept_messages
from hark.kernel.requests import RetryInstance
from hark.kernel.rows import LockedRow
from hark.kernel.runs import bpmn_control
from hark.model.errors import Conflict, Duplicate, no_instance
from hark.model.lanes import BPMN
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def plan(turn: Turn) -> None:
    """Reserve the key and the messages that a retry takes back, as starts and parks reserve them."""
    requests = turn.batch.of(RetryInstance)
    for request in requests:
        turn.locks.add_target(request.target)
    if not requests:
        return
    ids = sorted((await turn.locks.resolve(request.target for request in requests)).values())
    for row in await turn.tx.fetch(sql.details, ids=ids):
        if row.correlation_key is not None:
            turn.locks.reserve(row.correlation_key)
    for _, name, key, _ in await turn.tx.fetch(sql.closed_messages, ids=ids):
        turn.locks.reserve_message(name, key)


async def apply(turn: Turn) -> None:
    asked: list[tuple[RetryInstance, LockedRow]] = []
    live: list[tuple[RetryInstance, LockedRow]] = []
    held: list[str] = []
    for request in turn.batch.of(RetryInstance):
        row = turn.locks.find(request.target)
        if row is None:
            request.result = no_instance(request.target)
        elif row.kind == BPMN and not row.terminal:
            live.append((request, row))
        elif row.status == "held":
            held.append(row.id)
            row.status = "runnable"
            turn.history.event(row.id, "retried")
            request.result = row.id
        elif row.status != "failed":
            request.result = _not_failed(request.target, row.status)
        else:
            asked.append((request, row))
    if live:
        await _resume(turn, live)
    if held:
        await turn.tx.fetch(sql.release, ids=held)
        turn.result.pending.made_claimable = True
    if not asked:
        return
    ids = sorted({row.id for _, row in asked})
    details = {row.id: row for row in await turn.tx.fetch(sql.details, ids=ids)}
    keys = {row.correlation_key for row in details.values() if row.correlation_key is not None}
    holders: dict[str, str] = dict(await turn.tx.fetch(sql.taken, names=sorted(keys))) if keys else {}
    messages: dict[str, list[tuple[str, str]]] = {}
    receivers: dict[tuple[str, str], str | None] = {}
    for id, name, key, receiver in await turn.tx.fetch(sql.closed_messages, ids=ids):
        messages.setdefault(id, []).append((name, key))
        receivers[name, key] = receiver
    back = []
    for request, row in asked:
        failed, waited = details[row.id], messages.get(row.id, [])
        key = failed.correlation_key
        taken = next((message for message in waited if receivers[message] is not None), None)
        if row.status != "failed":  # retried by an earlier request of this turn
            request.result = _not_failed(request.target, row.status)
        elif row.kind == "task":  # its job would not know that it runs
            request.result = Conflict(
                f"{request.target!r} is a task: retry {failed.parent_id!r}, which runs its failed tasks again.",
                status=row.status,
            )
        elif key is not None and holders.get(key, row.id) != row.id:
            request.result = Duplicate(
                f"Instance {holders[key]} holds the correlation key {key!r} now. "
                "Wait until that instance has ended, then retry again.",
                holder=holders[key],
            )
        elif taken is not None:
            request.result = _message_taken(request.target, row.status, taken, receivers[taken])
        else:
            if key is not None:
                holders[key] = row.id
            receivers |= dict.fromkeys(waited, row.id)
            row.status = "runnable"
            turn.result.pending.lanes.add((failed.queue, failed.lane))
            request.result = row.id
            turn.history.event(row.id, "retried", failed.step)
            back.append(row.id)
    if back:
        await turn.tx.fetch(sql.retry_instances, ids=back)
        for reopened in sorted(await turn.tx.fetch(sql.reopen_awakeables, ids=back)):
            turn.history.asked(reopened.task_id or reopened.instance_id, reopened.id)
        await turn.tx.fetch(sql.reopen_waits, ids=back)
        await _take_kept(turn, {message for id in back for message in messages.get(id, ())})
        turn.result.pending.made_claimable = True


async def _take_kept(turn: Turn, messages: set[tuple[str, str]]) -> None:
    """Deliver the messages that were kept meanwhile and that retried instances wait for again."""
    if not messages:
        return
    found = await turn.tx.fetch(sql.message_waits, sorted(messages))
    armed = [
        kept_messages.Receiver(turn.rows[wait.instance_id], wait.id, wait.name, wait.key, bool(wait.answers_each))
        for wait in sorted(found, key=lambda wait: (wait.since, len(wait.id), wait.id))
        if wait.instance_id in turn.rows
    ]
    await kept_messages.take(turn, armed)
    await turn.inbox.flush()


async def _resume(turn: Turn, asked: list[tuple[RetryInstance, LockedRow]]) -> None:
    stuck = await bpmn_control.with_incidents(turn, [row for _, row in asked])
    for request, row in asked:
        if row.id in stuck:
            bpmn_control.post(turn, row, "retry")
            turn.history.event(row.id, "retried")
            request.result = row.id
        else:
            request.result = Conflict(
                f"{request.target!r} is {row.status} and has no incidents: there is nothing to retry.",
                status=row.status,
            )
    await turn.inbox.flush()


def _not_failed(target: str, status: str) -> Conflict:
    return Conflict(f"{target!r} is {status}; only a failed or held instance can be retried.", status=status)


def _message_taken(target: str, status: str, message: tuple[str, str], receiver: str | None) -> Conflict:
    name, key = message
    return Conflict(
        f"{target!r} waited for message {name!r} with key {key!r}, and instance {receiver} waits for it now; a message "
        "has one receiver. Wait until that instance has its message or has ended, then retry again.",
        status=status,
    )
