"""Children of a process: service tasks, and the processes that call activities call.

The end of each answers the one wait for children; what it has given is read from its row.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import NewInstance, NewTask, RetryChild
from hark.programs.bpmn.bpmn_spec import CallSpec, NodeSpec
from hark.programs.bpmn.interpreter.execution import RETRIED, Execution
from hark.programs.bpmn.interpreter.instance_state import FlowToken
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, as_name
from hark.programs.bpmn.interpreter.service_tasks import new_service_task, retried_state, service_lane, thrown_by
from hark.programs.bpmn.interpreter.terminating import told_by_child
from hark.programs.bpmn.interpreter.throwing import Thrown, escalate, raise_error
from hark.programs.expressions import ExpressionError
from hark.programs.jobs.job_services import TaskOutput

MAX_CALLS: Final = 100
"""The limit of nested calls of processes: one that calls itself without an end would fill the store, and the ids of its
instances, each with that of its caller in it, would get too long for an index."""


class _Called(Struct):
    """The part that is read of the state of a called process which has failed, or ended while its caller had failed."""

    variables: dict[str, Any] = {}
    thrown: dict[str, Any] | None = None
    scopes: list[Any] | None = None
    terminates: Literal["loop", "all"] | None = None


_called = msgspec.json.Decoder(_Called)


class BpmnChildren:
    """The children of an instance, during one activation."""

    def __init__(self, run: Execution, claim: Claim, max_payload: int) -> None:
        self._run = run
        self._claim = claim
        self._max_payload = max_payload
        self._by_child: dict[int, FlowToken] | None = None
        self._left: dict[str, str] = {}

    def left_by(self, row: TaskOutput) -> None:
        """The row of a child that may run again: a service task keeps its checkpoint."""
        self._left[row.id] = row.state

    def token_of(self, child: str) -> FlowToken | None:
        """The token that waits for this child."""
        if self._by_child is None:
            self._by_child = {token.child: token for token in self._run.tokens.values() if token.child}
        _, _, number = child.rpartition(".")
        token = self._by_child.get(int(number)) if number.isdecimal() else None
        if token is None or self._run.tokens.get(token.id) is not token or str(token.child) != number:
            return None
        return token

    # -- starting ------------------------------------------------------------------------------------

    def start(self, run: Execution, token: FlowToken, data: Any) -> None:
        """Start the child of a token, or run it again."""
        node = run.node(token)
        if self._by_child is not None:
            self._by_child[token.child] = token
        if data == RETRIED:
            self._retry(token, node)
            return
        wait = run.wait_id(0)
        if node.call is not None:
            called = self._called(token, node.call)
            self._tell_id(token, node.call)
            run.starts[token.child] = NewTask(called, wait)
            return
        scope = token.local or token.scope
        handler = self._handler(token, node)
        item = new_service_task(
            self._claim, run.graph.spec, token.node, run.child_id(token.child),
            local=run.local_view(scope), root=run.state.variables, handler=handler,
        )  # fmt: skip
        run.starts[token.child] = NewTask(item, wait)

    def _handler(self, token: FlowToken, node: NodeSpec) -> str:
        run = self._run
        return as_name(run.evaluate(node.handler, run.view(token.local or token.scope)), "name of the handler")

    def _called(self, token: FlowToken, call: CallSpec) -> NewInstance:
        run = self._run
        if run.id.count(".") >= MAX_CALLS:
            raise StuckToken(f"processes call each other {MAX_CALLS} levels deep: correct the condition that ends this")
        scope = token.local or token.scope
        seen = run.view(scope)
        variables = run.snapshot(scope) if call.all_in else {}
        variables |= {each.target: run.evaluate(each.source, seen) for each in call.inputs}
        version = run.evaluate(call.version, seen)
        if isinstance(version, str) and version.strip().isdecimal():
            version = int(version)
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise StuckToken("the version of the called process is not a whole number")
        return NewInstance(
            definition=as_name(run.evaluate(call.process, seen), "id of the called process"),
            version=version,
            state=json.dump(variables, limit=self._max_payload, what="input of the called process"),
            id=run.child_id(token.child),
            named=True,
            correlation_key=None if call.key is None else as_name(run.evaluate(call.key, seen), "correlation key"),
            trace=self._claim.trace,
        )

    def _tell_id(self, token: FlowToken, call: CallSpec) -> None:
        """Put the id of the called instance into the variable that is to have it."""
        if call.id_variable is not None:
            run, scope = self._run, token.local or token.scope
            name = as_name(run.evaluate(call.id_variable, run.view(scope)), "name of a variable")
            run.merge(scope, {name: run.child_id(token.child)})

    def _retry(self, token: FlowToken, node: NodeSpec) -> None:
        run = self._run
        id, wait = run.child_id(token.child), run.wait_id(0)
        if node.call is not None:
            run.retries[token.child] = RetryChild(id, parent_wait=wait)
            return
        scope = token.local or token.scope
        state = retried_state(
            self._claim, token.node, self._left.get(id), local=run.local_view(scope), root=run.state.variables
        )
        lane = service_lane(self._handler(token, node))
        run.retries[token.child] = RetryChild(
            id, step=node.id, state=state, lane=lane, version=self._claim.version, parent_wait=wait
        )

    # -- ending --------------------------------------------------------------------------------------

    def ended(self, token: FlowToken, row: TaskOutput | None, error: str | None) -> None:
        """Take the end of the child of a token."""
        run, node = self._run, self._run.node(token)
        if row is None:
            run.stop(token, error or "its row is not in the store any more", "body")
            token.child = 0
        elif row.status == "done" and node.call is not None and (what := _called_state(row.state).terminates):
            told_by_child(run, token, what)
            if run.tokens.get(token.id) is token:  # nothing around it was terminated
                run.push("ended", token, json.load(row.result) if row.result else None)
        elif row.status == "done":
            run.push("ended", token, json.load(row.result) if row.result else None)
        elif row.status in ("failed", "cancelled"):  # otherwise it runs again: this was an earlier end
            self._failed(token, node, row, error or row.error or row.status)

    def _failed(self, token: FlowToken, node: NodeSpec, row: TaskOutput, error: str) -> None:
        run = self._run
        thrown: Thrown | None = None
        if node.call is None:
            raised = thrown_by(row.state)
            if raised is not None:
                thrown = Thrown("error", raised.code, raised.message, raised.variables)
        else:
            called = _called_state(row.state)
            if called.thrown is not None:
                given = called.thrown
                self._return(token, node.call, called.variables)
                thrown = Thrown("error", given["code"], given.get("message", ""), given.get("variables"))
            elif called.scopes is None:  # it could not start
                run.stop(token, error, "body")
                token.child = 0
                return
        if thrown is not None:
            raise_error(run, token, thrown, "child")
        else:
            run.stop(token, error, "child")

    def escalated(self, token: FlowToken, body: dict[str, Any]) -> None:
        """Take an escalation that the child of a token has thrown; the child runs on."""
        call = self._run.node(token).call
        if call is not None:
            self._return(token, call, body.get("returned") or {})
        escalate(self._run, token, Thrown("escalation", str(body["code"]), "", body.get("variables")))

    def _return(self, token: FlowToken, call: CallSpec, returned: dict[str, Any]) -> None:
        """Take the outputs that a called process has by now: an error or an escalation brings them with it."""
        run = self._run
        if run.node(token).keeps_result:
            return
        if call.all_out:
            run.merge(token.scope, returned)
        for each in call.outputs:
            try:
                run.assign(token.scope, each.target, run.evaluate(each.source, returned))
            except ExpressionError:
                continue  # it has not come so far


def _called_state(state: str) -> _Called:
    try:
        return _called.decode(state)
    except msgspec.ValidationError:  # what was called is not a process, or has not begun
        return _Called()
