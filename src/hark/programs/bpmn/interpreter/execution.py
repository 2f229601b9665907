"""Execution: an instance in memory during one activation, with the operations that all parts of the interpreter use.

Work is a stack of actions. An action handles one token and pushes what follows, so a token moves until it rests before
the next one does. Actions are named: the modules that implement them push each other's without importing each other,
and an incident stores the name of what a retry has to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hark.model.decisions import Arm, CancelChild, Effect, NewAwakeable, Settle
from hark.programs.bpmn.bpmn_spec import NodeSpec
from hark.programs.bpmn.interpreter.instance_state import (
    Action,
    BpmnScope,
    BpmnState,
    Catcher,
    FlowToken,
    Incident,
    PendingAction,
    Resumption,
)
from hark.programs.bpmn.interpreter.scope_variables import VariableChange, Variables, assigned, flattened
from hark.programs.expressions.budget import Meter
from hark.programs.expressions.sources import evaluate, holds

if TYPE_CHECKING:
    from hark.programs.bpmn.interpreter.bpmn_children import BpmnChildren
    from hark.programs.bpmn.interpreter.bpmn_graph import (
        BpmnGraph,  # which knows the elements, and they know this module
    )

Work = tuple[Action, FlowToken | None, Any]

Joining = dict[int, dict[int, FlowToken]]  # tokens that wait in a join, by the flow that they came by and their number

RETRIED = "retried"
"""With this as its data, `child` runs the child of a token again."""

PAUSE_AFTER: Final = 1_000
"""Actions after which others of this worker can run: about 2 ms."""
YIELD_AFTER: Final = 40_000
"""Actions after which an activation commits what it has done and goes on in another: about 0.1 s."""
_PER_CHARACTER: Final = 32  # a large state is read and written for each activation: it gets longer ones
_STEPS_PER_ACTION: Final = 8  # steps of an expression that take as long as an action

_REASON = "the process does not wait for it any more"


class Execution:
    """An instance of a process in memory. `size` is that of its state in the store, in characters."""

    def __init__(
        self, id: str, graph: BpmnGraph, state: BpmnState, now: int, key: str | None, *, size: int = 0
    ) -> None:
        self.id = id
        self.graph = graph
        self.state = state
        self.now = now
        self.key = key  # the correlation key of the instance
        self.has_caller = False
        self.children: BpmnChildren  # set by the interpreter
        self.tokens: dict[int, FlowToken] = {token.id: token for token in state.tokens}
        self.scopes: dict[int, BpmnScope] = {scope.id: scope for scope in state.scopes}
        self.catchers: dict[int, Catcher] = {catcher.id: catcher for catcher in state.catchers}
        self.in_scope: dict[int, dict[int, FlowToken]] = {}  # the tokens of each scope
        for token in state.tokens:
            self.in_scope.setdefault(token.scope, {})[token.id] = token
        self.of_token: dict[int, list[int]] = {}
        self.of_scope: dict[int, list[int]] = {}  # those that start event sub-processes
        self.conditions: dict[int, Catcher] = {}  # the catchers that are conditions
        self.named: dict[tuple[str, str], dict[int, Catcher]] = {}  # those of signals and messages, by kind and name
        self.due: list[int] = []  # timers that were armed just now and are due at once
        for catcher in state.catchers:
            self._index(catcher)
        self.joining: dict[tuple[int, int], Joining] = {}  # the tokens that wait in joins, by scope and node
        for token in state.tokens:
            if token.flow >= 0 and graph.elements[token.node].is_join:
                self.wait_to_join(token)
        self.inner: dict[int, dict[int, None]] = {}  # the iterations of loops, and the handlers of compensations
        for scope in state.scopes:
            if scope.kind in ("iteration", "handler"):
                self.inner.setdefault(scope.parent, {})[scope.id] = None
        self.stopped = {incident.token for incident in state.incidents}  # tokens
        self.work: list[Work] = [self._loaded(pending) for pending in state.work]
        state.work = []
        self.done = 0  # actions, and nodes that were passed
        self.pause_at = PAUSE_AFTER
        self.yield_at = YIELD_AFTER + size // _PER_CHARACTER
        self.spent = 0  # the work of expressions, in actions that take as long
        self._meter = Meter()
        self.changes: list[VariableChange] = []  # for conditions
        self.arms: dict[int, Arm] = {}
        self.disarmed: list[int] = []
        self.awakeables: dict[str, NewAwakeable] = {}
        self.effects: list[Effect] = []
        self.starts: dict[int, Effect] = {}  # effects that start children, by the number of the child
        self.retries: dict[int, Effect] = {}  # those that run children again
        self.thrown: dict[str, Any] | None = None
        self.finished = False
        self.flows_taken: dict[int, int] = {}
        self.entered: dict[int, int] = {}

    # -- numbers and work ----------------------------------------------------------------------------

    def number(self) -> int:
        self.state.last += 1
        return self.state.last

    def push(self, action: Action, token: FlowToken | None, data: Any = None) -> None:
        """Do this next; what was pushed last is done first."""
        self.work.append((action, token, data))

    def _loaded(self, pending: PendingAction) -> Work:
        data = tuple(pending.data) if pending.action == "fire" else pending.data
        return pending.action, self.tokens[pending.token] if pending.token else None, data

    def left_work(self) -> list[PendingAction]:
        """The actions that are left for the next activation, without those of cancelled tokens."""
        return [
            PendingAction(action, 0 if token is None else token.id, data)
            for action, token, data in self.work
            if token is None or self.tokens.get(token.id) is token
        ]

    def pause_later(self) -> None:
        """Pause again after as many actions."""
        self.pause_at = self.done + PAUSE_AFTER

    def node(self, token: FlowToken) -> NodeSpec:
        """The node at which a token is."""
        return self.graph.nodes[token.node]

    # -- tokens and scopes ---------------------------------------------------------------------------

    def add_token(self, node: int, scope: int) -> FlowToken:
        token = FlowToken(self.number(), node, scope)
        self.tokens[token.id] = token
        self.in_scope.setdefault(scope, {})[token.id] = token
        return token

    def remove_token(self, token: FlowToken) -> None:
        """Remove a token that owns nothing any more."""
        del self.tokens[token.id]
        del self.in_scope[token.scope][token.id]

    def in_(self, scope: int) -> list[FlowToken]:
        """The tokens directly in a scope."""
        return list(self.in_scope.get(scope, {}).values())

    def is_iteration(self, token: FlowToken) -> bool:
        """Return True if this token does the work of one instance of a loop."""
        return self.scopes[token.scope].kind == "iteration"

    def cancel_token(self, token: FlowToken) -> None:
        """Remove a token, with everything that it owns and waits for."""
        self.cancel_work(token)
        self.remove_token(token)

    def cancel_work(self, token: FlowToken) -> None:
        """Cancel what a token owns and waits for; the token itself stays."""
        self.disarm_token(token)
        if token.child:
            self.cancel_child(token)
        if token.local:
            self.remove_scope(token.local)
            token.local = 0
        self.stop_joining(token)
        self.forget_incident(token)

    def cancel_child(self, token: FlowToken) -> None:
        is_new = self.starts.pop(token.child, None) is not None
        has_ended = self.retries.pop(token.child, None) is not None or token.id in self.stopped
        if not is_new and not has_ended:
            self.effects.append(CancelChild(self.child_id(token.child), _REASON))
        token.child = 0

    def remove_scope(self, scope: int) -> None:
        """Remove a scope, with its tokens and catchers."""
        self.disarm_scope(scope)
        for token in self.in_(scope):
            if token.id in self.tokens:
                self.cancel_token(token)
        for inner in list(self.inner.pop(scope, ())):
            self.remove_scope(inner)
        self.in_scope.pop(scope, None)
        removed = self.scopes.pop(scope)
        if removed.parent in self.inner:
            self.inner[removed.parent].pop(scope, None)

    def add_inner(self, scope: BpmnScope) -> None:
        """Add an iteration of a loop, or a handler of a compensation."""
        self.scopes[scope.id] = scope
        self.inner.setdefault(scope.parent, {})[scope.id] = None

    def wait_to_join(self, token: FlowToken) -> Joining:
        """Let a token wait in a join. Return the tokens that wait there, by the flow that they came by."""
        waiting = self.joining.setdefault((token.scope, token.node), {})
        waiting.setdefault(token.flow, {})[token.id] = token
        return waiting

    def stop_joining(self, token: FlowToken) -> None:
        """Take a token out of the join in which it waits."""
        if token.flow >= 0 and (waiting := self.joining.get((token.scope, token.node))) is not None:
            if (of_flow := waiting.get(token.flow)) is not None:
                of_flow.pop(token.id, None)
                if not of_flow:
                    del waiting[token.flow]
            if not waiting:
                del self.joining[token.scope, token.node]
        token.flow = -1

    def child_id(self, number: int) -> str:
        """The id of a child: a service task or a called process."""
        return f"{self.id}.{number}"

    def place_of(self, catcher: Catcher) -> str:
        """The place of a wait. Waits with one place share a deadline, so each event sub-process has its own."""
        return f"{self.graph.ids[catcher.node]}#{catcher.token or catcher.scope}"

    def leave(self, token: FlowToken) -> None:
        """Let a token go on: at once if there is only one flow, otherwise as the next action."""
        flow = self.graph.only_flow[token.node]
        if flow < 0:
            self.work.append(("leave", token, None))
        else:
            self.move(token, flow)

    def move(self, token: FlowToken, flow: int) -> None:
        token.node, token.flow = self.graph.targets[flow], flow
        self.flows_taken[flow] = self.flows_taken.get(flow, 0) + 1
        self.work.append(("enter", token, None))

    def follow(self, token: FlowToken, flows: Sequence[int]) -> None:
        """Move a token along these flows; it is split if there are several."""
        tokens = [token, *(self.add_token(token.node, token.scope) for _ in flows[1:])]
        for each, flow in zip(reversed(tokens), reversed(flows), strict=True):
            self.move(each, flow)

    # -- catchers ------------------------------------------------------------------------------------

    def _index(self, catcher: Catcher) -> None:
        if catcher.token:
            self.of_token.setdefault(catcher.token, []).append(catcher.id)
        else:
            self.of_scope.setdefault(catcher.scope, []).append(catcher.id)
        if catcher.kind == "condition":
            self.conditions[catcher.id] = catcher
        elif catcher.kind in ("broadcast", "message"):
            self.named.setdefault((catcher.kind, catcher.name), {})[catcher.id] = catcher

    def wait_id(self, number: int) -> str:
        """The id of the wait of a catcher."""
        return f"{self.id}~{number}"

    def add_catcher(self, catcher: Catcher, arm: Arm | None) -> None:
        """Wait for an event. A condition has nothing to arm."""
        self.catchers[catcher.id] = catcher
        self._index(catcher)
        if arm is not None:
            self.arm(catcher, arm)

    def arm(self, catcher: Catcher, arm: Arm) -> None:
        """Arm the wait of a catcher. A timer that is due at once fires as soon as all tokens rest."""
        self.arms[catcher.id] = arm
        if catcher.kind == "timer" and catcher.due <= self.now:
            self.due.append(catcher.id)

    def remove_catcher(self, catcher: Catcher, *, answered: bool = False) -> None:
        """Remove a catcher, which does not wait any more. `answered`: its awakeable is settled already."""
        self._unindex(catcher)
        self._drop(catcher, answered=answered)

    def forget_catcher(self, catcher: Catcher) -> None:
        """Remove a catcher that has no wait in the store."""
        self._unindex(catcher)
        del self.catchers[catcher.id]

    def _unindex(self, catcher: Catcher) -> None:
        ids = self.of_token[catcher.token] if catcher.token else self.of_scope[catcher.scope]
        ids.remove(catcher.id)

    def disarm_token(self, token: FlowToken) -> None:
        """Stop waiting for the event of a token and for those of its boundary."""
        for id in self.of_token.pop(token.id, ()):
            self._drop(self.catchers[id])

    def disarm_scope(self, scope: int) -> None:
        """Stop waiting for the event sub-processes of this scope."""
        for id in self.of_scope.pop(scope, ()):
            self._drop(self.catchers[id])

    def _drop(self, catcher: Catcher, *, answered: bool = False) -> None:
        del self.catchers[catcher.id]
        if catcher.kind == "condition":
            del self.conditions[catcher.id]
            return
        if catcher.kind in ("broadcast", "message"):
            del self.named[catcher.kind, catcher.name][catcher.id]
        if self.arms.pop(catcher.id, None) is None:
            self.disarmed.append(catcher.id)
            if catcher.kind == "awakeable" and not answered:
                self.effects.append(Settle(catcher.name, "CANCELLED"))
        else:
            self.awakeables.pop(catcher.name, None)

    # -- expressions ---------------------------------------------------------------------------------

    def evaluate(self, source: Any, variables: Mapping[str, Any]) -> Any:
        try:
            return evaluate(source, variables, self.now, self._meter)
        finally:
            if self._meter.steps >= _STEPS_PER_ACTION:
                self._count_steps()

    def holds(self, condition: str, variables: Mapping[str, Any]) -> bool:
        try:
            return holds(condition, variables, self.now, self._meter)
        finally:
            if self._meter.steps >= _STEPS_PER_ACTION:
                self._count_steps()

    def _count_steps(self) -> None:
        """Count the steps of expressions: the next pause, and the end of this activation, come the sooner."""
        actions, self._meter.steps = divmod(self._meter.steps, _STEPS_PER_ACTION)
        self.spent += actions
        self.pause_at -= actions
        self.yield_at -= actions

    # -- variables -----------------------------------------------------------------------------------

    def view(self, scope: int) -> Mapping[str, Any]:
        """The variables that a scope sees."""
        if scope == 0:
            return self.state.variables
        return Variables(self.layers(scope))

    def layers(self, scope: int) -> list[dict[str, Any]]:
        """The variables that a scope sees, from the inside to the outside."""
        found = [current.variables for current in self.scopes_around(scope) if current.variables]
        found.append(self.state.variables)
        return found

    def scopes_around(self, scope: int) -> Iterable[BpmnScope]:
        """A scope and those around it, without the process."""
        while scope:
            current = self.scopes[scope]
            yield current
            scope = current.parent

    def snapshot(self, scope: int) -> dict[str, Any]:
        """All variables that a scope sees, as an object of its own."""
        return flattened(self.layers(scope))

    def local_view(self, scope: int) -> dict[str, Any]:
        """The variables that a scope sees, without those of the process."""
        return flattened([current.variables for current in self.scopes_around(scope)])

    def merge(self, scope: int, values: Mapping[str, Any]) -> None:
        """Set variables: each where it is, from this scope outwards; a new one in the process."""
        if not scope and not self.conditions:
            self.state.variables.update(values)
            return
        for name, value in values.items():
            where = 0
            variables = self.state.variables
            for current in self.scopes_around(scope):
                if name in current.variables:
                    if current.kind == "handler":  # it sees what it writes
                        current.variables[name] = value
                        continue
                    where, variables = current.id, current.variables
                    break
            if self.conditions:
                self.changes.append(VariableChange(where, name, "update" if name in variables else "create"))
            variables[name] = value

    def assign(self, scope: int, target: str, value: Any) -> None:
        """Set a variable, or a part of one: `order.total`."""
        name, *path = target.split(".")
        if path:
            value = assigned(self.view(scope).get(name), path, value)
        self.merge(scope, {name: value})

    # -- incidents -----------------------------------------------------------------------------------

    def stop(
        self, token: FlowToken | None, error: str, resume: Resumption, data: Any = None, *, element: str = "",
        fatal: bool = False,
    ) -> None:  # fmt: skip
        """Stop a token with an incident."""
        id = 0 if token is None else token.id
        element = element or ("" if token is None else self.graph.ids[token.node])
        self.state.incidents.append(Incident(id, element, error, self.now, resume, data, fatal))
        self.stopped.add(id)

    def forget_incident(self, token: FlowToken) -> None:
        """Remove the incident of a token, which is not stopped any more."""
        if token.id in self.stopped:
            self.stopped.discard(token.id)
            self.state.incidents = [each for each in self.state.incidents if each.token != token.id]


def number_of(wait_id: str | None) -> int:
    """The number of the catcher that a wait belongs to."""
    return int((wait_id or "~0").rpartition("~")[2])
