"""The activities: tasks, sub-processes and call activities, a class each.

What all activities have in common (loops, mappings, boundary events, results) is in activities.py.
"""

from __future__ import annotations

from typing import Any, Final

from hark.programs.bpmn.bpmn_elements import NodeKind
from hark.programs.bpmn.bpmn_spec import NodeSpec, UserSpec
from hark.programs.bpmn.interpreter import catching, scopes, throwing, user_tasks
from hark.programs.bpmn.interpreter.activities import Activity, ended, seen_by
from hark.programs.bpmn.interpreter.element_behaviour import Values
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import FlowToken


class EmptyTask(Activity):
    """A task without a type, or a manual task: it is over at once."""

    is_instant = True


class ScriptTask(Activity):
    is_instant = True

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        ended(run, token, run.evaluate(node.script, run.view(seen_by(token))))


class SendTask(Activity):
    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        throwing.send_message(run, token, node, "ended")


class ReceiveTask(Activity):
    is_catch = True

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        catching.arm(run, token, token.node, seen_by(token))


class UserTask(Activity):
    """Waits for the answer of a person."""

    is_catch = True

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        user_tasks.ask(run, token, node)

    def answer(self, run: Execution, token: FlowToken | None, payload: Any, by: str | None) -> Values | None:
        assert token is not None
        return user_tasks.answer_of(run, token, run.node(token).user or UserSpec(), payload, by)


class ChildActivity(Activity):
    """Waits for a child. How it starts and ends is in bpmn_children.py."""

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        token.child = run.number()
        run.push("child", token)


class ServiceTask(ChildActivity):
    """Has a child: the service task that a handler runs."""

    has_handler = True


class CallActivity(ChildActivity):
    """Has a child: an instance of the process that it calls."""


class SubProcess(Activity):
    """Runs the nodes in it, in a scope of its own. Transactions and event sub-processes are sub-processes too."""

    scope_kind = "subprocess"

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        scopes.begin(run, run.scopes[token.local], run.graph.begins(token.node))


ACTIVITIES: Final[dict[NodeKind, Activity]] = {
    "task": EmptyTask(),
    "service": ServiceTask(),
    "send": SendTask(),
    "script": ScriptTask(),
    "user": UserTask(),
    "receive": ReceiveTask(),
    "subprocess": SubProcess(),
    "call": CallActivity(),
}
