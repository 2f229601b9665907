"""Execute a turn in full: all queued requests in one transaction, with a constant number of statements.

The order is the proof. Names are reserved and targets are resolved; then all instance rows are locked in id order
(invariant 3); only then is anything else read or written. Everything that could wait for another transaction comes
before the claims, which skip locked rows.

This file has the order of the phases, and the state that the verbs share. Each phase is in the file of its verb.
"""

from __future__ import annotations

from collections.abc import Sequence

from hark.kernel import (
    assign_awakeables,
    broadcast,
    buckets,
    cancel,
    children,
    claim,
    commit,
    counts,
    definitions,
    deliver,
    deploy,
    expire,
    fork,
    journal,
    links,
    message,
    migrate,
    reclaim,
    retain,
    retry,
    schedules,
    settle,
    start,
    tokens,
    triggers,
)
from hark.kernel.batch import Batch
from hark.kernel.broadcast import Broadcasts
from hark.kernel.buckets import BucketState
from hark.kernel.children import Children
from hark.kernel.definitions import Catalog
from hark.kernel.history import History
from hark.kernel.inbox import Inbox, load_waits
from hark.kernel.locks import Locks
from hark.kernel.requests import Capacity, CheckWritable, Deliver, Request, Sweep
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.runs import bpmn_control, outside_claims, run_again, run_signals, task_notes
from hark.kernel.runs.run_signals import RunQueues
from hark.kernel.schedules import Schedules
from hark.kernel.triggers import Triggered
from hark.model.lanes import INTERPRETED
from hark.model.values import PARKED
from hark.store import statements as sql
from hark.store.protocol import Tx


async def run_turn(
    tx: Tx,
    rules: Rules,
    catalog: Catalog,
    requests: Sequence[Request],
    capacity: Capacity | None = None,
    *,
    sweep: bool = False,
    pending_deliveries: bool = False,
    run_ahead: bool = True,
) -> TurnResult:
    """Carry out these requests in a transaction; the caller commits it.

    Args:
        tx: The transaction.
        rules: The settings of the application.
        catalog: The definitions this process has read; updated.
        requests: What to do. Each gets its result; what else of it is set (`fenced`, `by_key`, `read_owner`) may be set
            again, so that the same requests can run again after a rollback.
        capacity: What to claim for a worker, or None to claim nothing.
        sweep: Fire the delays, deadlines and schedules that are due.
        pending_deliveries: Deliver a chunk of the pending deliveries of large broadcasts.
        run_ahead: False while the worker stops: a `Next` is queued instead of running ahead.

    Returns:
        The report to the clerk. It is valid only after the COMMIT.
    """
    turn = Turn(tx, rules, catalog, requests)
    batch, locks, result = turn.batch, turn.locks, turn.result
    outside_claims.add_outcomes(turn)
    commit.add_effects(turn)
    # Most turns have nothing but outcomes, starts, signals and answers: they skip all other verbs.
    rare = batch.has_rare or bool(batch.message_waits)
    sweeps = batch.of(Sweep)
    abandoned: list[str] = []
    if rare:
        await definitions.record(turn)
        definitions.plan(turn)
        fork.plan(turn)
        await tokens.apply(turn)
        await links.apply(turn)
    # Before the lock: what to reserve, and which rows to lock.
    start.plan(turn)
    deliver.plan(turn)
    if rare:
        deploy.plan(turn)
        broadcast.plan_names(turn)
        cancel.plan(turn)
        reclaim.plan(turn)
        bpmn_control.plan(turn)
        await retry.plan(turn)
        migrate.plan(turn)
        run_again.plan(turn)
        message.plan_names(turn)
    if rare or sweep:
        await schedules.plan(turn, sweep=sweep or bool(sweeps))
    await locks.reserve_names()
    await locks.resolve_targets()
    await settle.plan(turn)
    if rare:
        await cancel.plan_tree(turn)
        abandoned = await reclaim.plan_abandoned(turn)
        await message.plan(turn)
        outside_claims.plan(turn)
        task_notes.plan(turn)
        children.plan_news(turn)
    if rare or pending_deliveries:
        await broadcast.plan(turn, deliver_pending=pending_deliveries or bool(sweeps))
    commit.plan(turn)
    # The lock, and the first reads under it.
    await locks.acquire()
    commit.fence(turn)
    receivers = broadcast.receivers(turn)
    parked = [row for row in turn.rows.values() if row.status in PARKED or row.id in receivers]
    if locks.has_runs and len(batch.of(Deliver)) == len(requests):
        # No signal wakes a run. A pending delivery does, and may be delivered in the same turn.
        parked = [row for row in parked if row.kind not in INTERPRETED or row.id in receivers]
    await load_waits(tx, parked)
    # The verbs, in an order in which each sees the changes of the ones before it.
    if rare:
        await migrate.apply(turn)  # first: the epochs that it compares are those of the lock
        await cancel.apply(turn)
        await reclaim.apply(turn, abandoned)
        await bpmn_control.apply(turn)
        await retry.apply(turn)
        await run_again.apply(turn)
        commit.fence_again(turn)
        await message.refuse_held(turn)
        await outside_claims.apply(turn)
    await commit.choose_versions(turn)
    seen_before = await deliver.find_seen_before(turn)
    if rare:
        await deploy.apply(turn, requests)
        await definitions.set_retired(turn)
    await schedules.apply(turn)
    await start.apply(turn, seen_before)
    if rare:
        await fork.apply(turn)
    await schedules.record(turn)
    await broadcast.deliver_chunk(turn)  # before anything newer
    if batch.deliveries:
        await deliver.apply(turn, seen_before)
    if rare:
        to_store = await message.apply(turn)
        await triggers.apply(turn, to_store)
        if to_store is not None:
            await to_store.record(turn)
        await children.apply_news(turn)
    await turn.inbox.flush()
    if rare or pending_deliveries:
        await broadcast.record(turn)
    await settle.apply(turn)
    if rare:
        deliver.record_refusals(turn)
        await assign_awakeables.apply(turn)
        await task_notes.apply(turn)
    running = await commit.apply(turn, run_ahead=run_ahead)
    if turn.runs is not None:
        await run_signals.give_back(turn)
    await schedules.release(turn)
    await journal.apply(turn)
    # A park whose deadline has passed already is due now, not a turn later.
    earliest = result.pending.earliest
    sweep = sweep or bool(sweeps) or (earliest is not None and earliest <= turn.now)
    if sweep:
        await expire.sweep(turn)
    for request in sweeps:
        request.result = result.pending.more
    await buckets.release(turn)
    if sweep or turn.buckets.freed or turn.buckets.left:
        await buckets.promote(turn)
    await claim.apply(turn, capacity, running)
    if rare:
        await outside_claims.fetch(turn)
        await retain.apply(turn)
        if batch.of(CheckWritable):
            await tx.fetch(sql.check_writable)
    result.pending.refused_keys = any(bucket.startswith("slot:") for bucket in turn.buckets.refused)
    await turn.history.write(tx)
    counts.add_up(turn)
    result.signalled, result.arrived = turn.inbox.executing, turn.inbox.arrived
    result.failures = turn.history.failures
    result.deliveries = batch.deliveries
    result.provable = bool(turn.history.events or result.ran_ahead or turn.broadcasts.published)
    return result


class Turn:
    """The state of one turn, one attribute per thought. It is discarded when the transaction fails."""

    __slots__ = (
        "_schedules", "_triggered", "batch", "broadcasts", "buckets", "catalog", "children", "history", "inbox",
        "locks", "now", "result", "rows", "rules", "runs", "tx",
    )  # fmt: skip

    def __init__(self, tx: Tx, rules: Rules, catalog: Catalog, requests: Sequence[Request]) -> None:
        self.tx = tx
        self.now = tx.now
        self.rules = rules
        self.catalog = catalog
        self.batch = Batch(requests)
        self.locks = Locks(tx)
        self.rows = self.locks.rows
        self.inbox = Inbox(tx)
        self.broadcasts = Broadcasts()
        self.buckets = BucketState()
        self.children = Children()
        self.runs: RunQueues | None = None  # if the turn has to do with one
        self._schedules: Schedules | None = None
        self._triggered: Triggered | None = None
        self.history = History(tx.now)
        self.result = TurnResult(tx.now, tx.xid)

    # Made at the first use: few turns have any, and every turn would pay for the empty ones.

    @property
    def has_schedules(self) -> bool:
        """True when this turn fires or changes a schedule, or ends an instance that one has started."""
        return self._schedules is not None

    @property
    def schedules(self) -> Schedules:
        if self._schedules is None:
            self._schedules = Schedules()
        return self._schedules

    @property
    def has_triggered(self) -> bool:
        """True when a broadcast or message of this turn may start instances."""
        return self._triggered is not None

    @property
    def triggered(self) -> Triggered:
        if self._triggered is None:
            self._triggered = Triggered()
        return self._triggered
