"""Run terminate end events: they end their scope or, as in Flowable, the multi-instance activity around them or
everything.

A called process tells its caller, which does the same in its own instance. A caller that has failed by then finds it in
the state of the called process when it is retried.
"""

from __future__ import annotations

from typing import Literal

from hark.model import json
from hark.model.decisions import TellParent
from hark.programs.bpmn.bpmn_spec import EventSpec
from hark.programs.bpmn.interpreter import loops, scopes
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import FlowToken

TERMINATED = "terminated"
"""The status of the row with which a called process tells its caller."""


def terminate(run: Execution, token: FlowToken, event: EventSpec) -> None:
    """Terminate: a token has come to a terminate end event."""
    if event.terminates == "all":
        _end_instance(run)
    elif event.terminates == "scope":
        scopes.terminate(run, token)
    elif not _end_loop(run, token):
        scopes.terminate(run, token)
        _tell(run, "loop")


def told_by_child(run: Execution, token: FlowToken, what: Literal["loop", "all"]) -> None:
    """Terminate what is around a token, because the process that it has called does."""
    if what == "all":
        _end_instance(run)
    elif not _end_loop(run, token):
        _tell(run, "loop")


def _end_instance(run: Execution) -> None:
    scopes.interrupt(run, run.scopes[0])
    scopes.may_end(run, 0)
    _tell(run, "all")


def _end_loop(run: Execution, token: FlowToken) -> bool:
    """End the innermost multi-instance activity around a token. Return False if there is none."""
    for scope in run.scopes_around(token.scope):
        spec = run.graph.nodes[scope.node].loop
        if scope.kind == "loop" and spec is not None and spec.kind != "standard":
            loops.stop(run, run.tokens[scope.owner])
            return True
    return False


def _tell(run: Execution, what: Literal["loop", "all"]) -> None:
    if run.finished:
        run.state.terminates = what
    if run.has_caller:
        run.effects.append(TellParent(json.dump({"status": TERMINATED, "what": what})))
