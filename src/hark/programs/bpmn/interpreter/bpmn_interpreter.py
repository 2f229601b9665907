"""The interpreter of processes: one activation handles the rows of the inbox in order, each until all tokens rest.

Everything it changes is in one decision: the state, the waits that are armed and disarmed, the awakeables, and the
effects. An instance parks as long as it has tokens; it ends when the last one has ended, and fails when no token can go
on any more.

An activation that has much to do commits what it has done, with the actions that are left, and another one goes on: so
other instances of the worker and the turns of its process get their time, and a loop without an end can be seen and
cancelled. What has come meanwhile is handled when all tokens rest, as it would be in one activation.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, assert_never

import msgspec

from hark.model import json
from hark.model.activation import Claim, InboxRow
from hark.model.answers import SettledAnswer, load_answer
from hark.model.bpmn_state import has_begun
from hark.model.decisions import Arm, CancelChild, Decision, DecisionEvent, Finish, Park, Proceed, stop
from hark.model.errors import HarkError, InvalidInput
from hark.model.events import OutcomeType
from hark.model.failures import Failure, storable
from hark.programs.bpmn.bpmn_spec import START
from hark.programs.bpmn.interpreter import (
    activities,
    catching,
    compensation,
    firing,
    gateways,
    moving,
    scopes,
    terminating,
    throwing,
)
from hark.programs.bpmn.interpreter.bpmn_children import BpmnChildren
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.bpmn.interpreter.bpmn_services import BpmnServices
from hark.programs.bpmn.interpreter.execution import Execution, number_of
from hark.programs.bpmn.interpreter.instance_state import (
    RUN,
    BpmnScope,
    BpmnState,
    FlowToken,
    Unarmed,
    dump_bpmn_state,
    load_bpmn_state,
    resting_elements,
)
from hark.programs.bpmn.interpreter.retrying import BpmnRetry
from hark.programs.bpmn.interpreter.scope_variables import StuckToken
from hark.programs.expressions import ExpressionError
from hark.programs.interpreted import NAMED_FAILURES, named

MAX_ACTIONS: Final = 1_000_000
"""The limit of actions without a wait: a loop without one in it never rests."""
MAX_WORK: Final = 20_000_000
"""The same for the work of expressions, in actions that take as long: about a minute."""
_GIVE_WAY: Final = 0.001
"""Seconds of a pause in an activation that goes on with the work of another. Without them the thread of the clerk waits
5 ms for the interpreter's lock at each statement: turns beside two endless loops took 290 ms, with them 80 ms."""
_encode = msgspec.json.Encoder().encode  # for ids and numbers, which need no check

_ACTIONS: Final[dict[str, Any]] = {
    "enter": moving.enter,
    "body": activities.body,
    "ended": activities.ended,
    "iterated": activities.iterated,
    "completed": activities.completed,
    "leave": moving.leave,
    "end": moving.end,
    "fire": firing.fire,
    "thrown": throwing.thrown,
    "compensate": compensation.compensate,
    "child": activities.child,
}


async def run_bpmn(claim: Claim, services: BpmnServices) -> Decision:
    graph = await services.bpmn_graph(claim.definition, claim.version)
    return await _BpmnActivation(claim, services, graph).run()


class _BpmnActivation:
    def __init__(self, claim: Claim, services: BpmnServices, graph: BpmnGraph) -> None:
        self._claim = claim
        self._services = services
        self._graph = graph
        state = load_bpmn_state(claim.state) if has_begun(claim.step) else _first_state(claim, graph)
        self._run = Execution(claim.id, graph, state, claim.now, claim.correlation_key, size=len(claim.state))
        self._run.has_caller = claim.parent_wait is not None
        self._children = self._run.children = BpmnChildren(self._run, claim, services.max_payload)
        self._by_awakeable: dict[str, int] | None = None
        self._retry = BpmnRetry(self._run, claim, services, self._children)

    async def run(self) -> Decision:
        claim, run = self._claim, self._run
        if not has_begun(claim.step):
            self._begin()
        elif run.state.failed:
            await self._retry.read_left()
            await self._retry.resume_failed()
        elif run.work:
            await self._retry.read_left()
        changed = self._arm_added() if run.state.unarmed else []
        if run.work or run.changes or run.due or self._graph.joins_by_reach:
            await self._work()
        rows = [(row, _payload(row)) for row in claim.inbox if row.kind != "signal"]
        ended = await self._ended_children(rows)
        handled: list[InboxRow] = []
        for row, payload in rows:
            if run.work and not run.finished and not self._fails():
                break  # the next activation finds it again
            if not run.finished:
                await self._handle_after_work(row, payload, ended)
                await self._work()
            handled.append(row)
        self._arm_each(changed)
        return self._decide(handled)

    # -- what has come -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Put the first token on the start event."""
        run, step = self._run, self._claim.step
        number = self._graph.none_start
        if step != START:
            element = step.removeprefix(f"{START}:")
            if all(each.id != element for each in self._graph.spec.starts):
                raise InvalidInput(f"The process {self._graph.spec.id!r} has no start event {element!r}.")
            number = self._graph.element_of[self._graph.numbers[element]]
        elif number is None:
            assert self._graph.waiting_starts, "a process without a start event for it cannot be started by name"
            scopes.begin(run, run.scopes[0], self._graph.waiting_starts)
            return
        assert number is not None
        node = self._graph.nodes[number]
        if node.outputs:
            given = run.state.variables
            run.state.variables = {} if node.keeps_result else dict(given)
            for each in node.outputs:
                run.assign(0, each.target, run.evaluate(each.source, given))
        scopes.begin(run, run.scopes[0], (number,))

    def _arm_added(self) -> list[Unarmed]:
        """Wait for what the instance has to wait for since it was migrated. Return those that it waits for already, and
        that do not interrupt any more."""
        run = self._run
        added, run.state.unarmed = run.state.unarmed, []
        for each in added:
            token = run.tokens.get(each.token)
            if each.catcher or (each.token and token is None):
                continue
            try:
                catching.arm_added(run, token, each)
            except (ExpressionError, StuckToken, HarkError) as error:
                self._stuck("arm", token, each, error)
        return [each for each in added if each.catcher]

    def _arm_each(self, changed: list[Unarmed]) -> None:
        """Arm the waits of these again, once what came for the earlier ones is handled."""
        run = self._run
        if run.work:
            run.state.unarmed += changed
            return
        for each in changed:
            if each.catcher in run.catchers:
                catching.arm_each(run, run.catchers[each.catcher])

    async def _ended_children(self, rows: list[tuple[InboxRow, Any]]) -> dict[str, Any]:
        """The rows of the children that have failed, or have a result that is not in the inbox, read at once."""
        ids = [
            row.name
            for row, payload in rows
            if row.kind == "children" and "result" not in payload and self._children.token_of(row.name) is not None
        ]
        return await self._services.outputs(ids) if ids else {}

    async def _handle_after_work(self, row: InboxRow, payload: Any, ended: dict[str, Any]) -> None:
        """Handle a row. If the instance fails with work left, which a retry will do, the row is handled after that."""
        run = self._run
        left, run.work = run.work, []
        if row.kind == "control" and row.name == "retry":
            await self._retry.resume_incidents()
        else:
            self._handle(row, payload, ended)
        run.work += left

    def _handle(self, row: InboxRow, payload: Any, ended: dict[str, Any]) -> None:
        run = self._run
        match row.kind:
            case "children":
                token = self._children.token_of(row.name)
                if token is None:
                    return  # the token was cancelled
                if payload.get("status") == "escalated":
                    self._children.escalated(token, payload)
                    return
                if payload.get("status") == terminating.TERMINATED:
                    terminating.told_by_child(run, token, payload["what"])
                    return
                if token.child in run.retries:
                    return  # it ended while this instance had failed, and was read from its row
                if token.id in run.stopped:
                    if payload.get("status") != "done":
                        return
                    run.forget_incident(token)  # it was retried itself: a called process is an instance of its own
                if "result" in payload:
                    run.push("ended", token, payload["result"])
                else:
                    self._children.ended(token, ended.get(row.name), payload.get("error"))
            case "control":
                if row.name != "migrated":
                    run.merge(0, payload)
            case "awakeable":
                if self._by_awakeable is None:
                    self._by_awakeable = {each.name: id for id, each in run.catchers.items()}
                self._answered(self._by_awakeable.get(row.name, 0), payload)
            case "broadcast" | "message" | "timer":
                run.push("fire", None, (number_of(row.wait_id), payload))
            case "signal":  # stays in the inbox for the tasks
                pass
            case _ as never:
                assert_never(never)

    def _answered(self, id: int, answer: SettledAnswer) -> None:
        run = self._run
        catcher = run.catchers.get(id)
        if catcher is None:
            return  # the user task was cancelled
        if answer.status == "RESOLVED":
            run.push("fire", None, (id, json.load(answer.text), answer.by))
            return
        token = run.tokens[catcher.token]
        run.remove_catcher(catcher, answered=True)
        reason = answer.error or "rejected"
        throwing.raise_error(run, token, throwing.Thrown("error", reason, reason), "enter")

    # -- work ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Do the pushed actions, until all tokens rest or another activation has to go on."""
        run, actions = self._run, _ACTIONS
        while True:
            while run.work or run.changes:
                if run.changes:
                    self._check_conditions()
                    continue
                if run.done >= run.pause_at and not await self._pause():
                    return
                name, token, data = run.work.pop()
                if token is not None and run.tokens.get(token.id) is not token:
                    continue  # it was cancelled
                depth = len(run.work)
                run.done += 1
                try:
                    actions[name](run, token, data)
                except (ExpressionError, StuckToken, HarkError) as error:
                    del run.work[depth:]
                    self._stuck(name, token, data, error)
            if run.finished:
                return
            if self._graph.joins_by_reach and gateways.resolve(run):
                continue
            if not run.due or not self._fire_due_timers():
                return

    async def _pause(self) -> bool:
        """Let others of this worker run; stop a process that does not come to rest. Return False if another activation
        has to do what is left."""
        run = self._run
        if run.done >= run.yield_at or any(each.resume == "work" for each in run.state.incidents):
            return False
        if run.state.passed + run.done > MAX_ACTIONS or run.state.spent + run.spent > MAX_WORK:
            self._stop_endless()
            return False
        run.pause_later()
        await asyncio.sleep(_GIVE_WAY if run.state.passed else 0)
        return True

    def _stop_endless(self) -> None:
        """Fail the instance: it does not come to rest. A retry goes on where it was."""
        run = self._run
        token = run.work[-1][1]
        element = "" if token is None else self._graph.ids[token.node]
        where = f" It came to {element!r} last." if element else ""
        if run.state.passed + run.done > MAX_ACTIONS:
            error = (
                f"The process went through {MAX_ACTIONS} elements without waiting: it has an endless loop.{where} "
                "Correct its conditions, or put a timer into the loop."
            )
        else:
            error = (
                f"The process evaluated expressions for about a minute without waiting.{where} Correct "
                "its conditions if it loops. Else put the work into a service task, or a timer into the loop."
            )
        run.stop(None, error, "work", element=element, fatal=True)

    def _check_conditions(self) -> None:
        run = self._run
        changes = list(run.changes)
        try:
            catching.check_conditions(run)
        except StuckToken as error:
            run.stop(None, storable(f"A condition of {error}"), "conditions", changes, element="", fatal=True)

    def _fire_due_timers(self) -> bool:
        """Fire the timers that were armed just now and are due at once."""
        run = self._run
        due, run.due = [id for id in run.due if id in run.arms], []
        for id in reversed(due):
            run.push("fire", None, (id, None))
        return bool(due)

    def _stuck(self, name: str, token: FlowToken | None, data: Any, error: Exception) -> None:
        """Fail the instance: an expression could not be evaluated, or a token has nowhere to go."""
        run = self._run
        if token is None and name == "fire":
            catcher = run.catchers.get(data[0])
            token = None if catcher is None or not catcher.token else run.tokens.get(catcher.token)
        number = -1 if token is None else token.node
        if token is None and name == "fire" and data[0] in run.catchers:
            number = run.catchers[data[0]].node
        element, line = ("", 0) if number < 0 else (self._graph.ids[number], self._graph.nodes[number].line)
        at = f" (line {line})" if line else ""
        text = storable(f"Element {element!r}{at}: {error}" if element else str(error))
        resume: Any = getattr(error, "resume", None) or name
        kept = data if name in ("ended", "fire", "arm") else None
        run.stop(None if name in ("fire", "arm") else token, text, resume, kept, element=element, fatal=True)

    # -- the outcome ---------------------------------------------------------------------------------

    def _decide(self, rows: list[InboxRow]) -> Decision:
        run, state = self._run, self._run.state
        state.scopes, state.tokens = list(run.scopes.values()), list(run.tokens.values())
        state.catchers = list(run.catchers.values())
        state.elements = resting_elements(state.tokens, self._graph.ids)
        state.work, passed, spent = run.left_work() if run.work else [], state.passed, state.spent
        state.passed = state.spent = 0
        if run.finished:
            decision = self._finish()
        elif self._fails():
            decision = self._fail()
        elif run.work:
            state.passed, state.spent = passed + run.done, spent + run.spent
            decision = self._proceed()
        else:
            decision = self._park()
        decision.consume = tuple(row.seq for row in rows)
        decision.effects = [*run.effects, *run.retries.values(), *run.starts.values()]
        decision.events = self._moved()
        return decision

    def _finish(self) -> Decision:
        state = self._run.state
        state.scopes, state.tokens, state.catchers, state.incidents, state.elements = [], [], [], [], {}
        state.work = []
        result = json.dump_unchecked(state.variables)
        return Decision("done", RUN, dump_bpmn_state(state), Finish("done", result=result))

    def _fails(self) -> bool:
        """Return True if the instance fails: at once, or because no token can go on."""
        run = self._run
        if not run.state.incidents:
            return False
        if run.thrown or any(incident.fatal for incident in run.state.incidents):
            return True
        if run.work or any(catcher.kind != "condition" for catcher in run.catchers.values()):
            return False
        return not any(token.child and token.id not in run.stopped for token in run.tokens.values())

    def _fail(self) -> Decision:
        run, state = self._run, self._run.state
        state.failed, state.thrown = True, run.thrown
        for token in run.tokens.values():
            if token.child in run.starts:
                del run.starts[token.child]
            elif token.child in run.retries:  # it is not run again: the next retry does that
                del run.retries[token.child]
                if token.id in self._retry.resumed:
                    state.incidents.append(self._retry.resumed[token.id])
            elif run.thrown is not None and token.child and token.id not in run.stopped:
                run.effects.append(CancelChild(run.child_id(token.child), "the process has failed"))
        texts = [
            each.error if each.fatal and not run.thrown else f"Element {each.element!r}: {each.error}"
            for each in state.incidents[:NAMED_FAILURES]
        ]
        return stop(RUN, dump_bpmn_state(state), Failure(None, storable(named(texts, len(state.incidents)))))

    def _proceed(self) -> Decision:
        """Commit what this activation has done; another one goes on with what is left."""
        run = self._run
        move = Proceed(self._arms(), self._disarmed(), tuple(run.awakeables.values()))
        return Decision("next", RUN, dump_bpmn_state(run.state), move)

    def _park(self) -> Decision:
        run = self._run
        label: OutcomeType = "spawn" if run.starts else "await"
        move = Park(
            self._arms(),
            disarm=self._disarmed(),
            awakeables=tuple(run.awakeables.values()),
            has_children=self._has_children(),
        )
        return Decision(label, RUN, dump_bpmn_state(run.state), move)

    def _arms(self) -> tuple[Arm, ...]:
        arms = list(self._run.arms.values())
        if all(wait.kind != "children" for wait in self._claim.waits):
            arms.append(Arm("children", self._run.wait_id(0), answers_each=True))
        return tuple(arms)

    def _disarmed(self) -> tuple[str, ...]:
        return tuple(self._run.wait_id(id) for id in self._run.disarmed)

    def _has_children(self) -> bool:
        """Return True if a service task or a called process runs: one that has failed does not."""
        state = self._run.state
        stopped = {incident.token for incident in state.incidents}
        return any(token.child and token.id not in stopped for token in state.tokens)

    def _moved(self) -> tuple[DecisionEvent, ...]:
        run, graph = self._run, self._graph
        if not run.entered and not run.flows_taken:
            return ()
        flows = {graph.flows[flow].id: count for flow, count in run.flows_taken.items()}
        elements = {graph.ids[node]: count for node, count in run.entered.items()}
        return (DecisionEvent("moved", None, _encode({"flows": flows, "elements": elements}).decode()),)


def _first_state(claim: Claim, graph: BpmnGraph) -> BpmnState:
    given = json.load(claim.state)
    variables = given if isinstance(given, dict) else {}
    if graph.spec.variables:
        variables = graph.spec.variables | variables
    return BpmnState(variables, scopes=[BpmnScope(0, -1, 0, "process")])


def _payload(row: InboxRow) -> Any:
    return load_answer(row.payload) if row.kind == "awakeable" else json.load(row.payload)
