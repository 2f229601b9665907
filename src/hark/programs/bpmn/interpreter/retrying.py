"""Continue a process that is retried: it waits again for what it waited for, and its incidents resume.

A failed instance keeps its waits, closed, and the kernel opens them again. What the failing activation had armed or
started was not written: it is armed and started now.
"""

from __future__ import annotations

from typing import Literal

from hark.model.activation import Claim
from hark.programs.bpmn.interpreter.bpmn_children import BpmnChildren
from hark.programs.bpmn.interpreter.bpmn_services import BpmnServices
from hark.programs.bpmn.interpreter.execution import RETRIED, Execution, number_of
from hark.programs.bpmn.interpreter.instance_state import FlowToken, Incident, Unarmed
from hark.programs.bpmn.interpreter.scope_variables import VariableChange
from hark.programs.jobs.job_services import TaskOutput


class BpmnRetry:
    """A retry, in one activation.

    Attributes:
        resumed: The incidents whose child is run again, by token: if the instance fails at once, they are kept.
    """

    def __init__(self, run: Execution, claim: Claim, services: BpmnServices, children: BpmnChildren) -> None:
        self._run = run
        self._claim = claim
        self._services = services
        self._children = children
        self.resumed: dict[int, Incident] = {}

    async def read_left(self) -> None:
        """Read what those children have left that the last activation was to run again."""
        run = self._run
        again = [token for action, token, data in run.work if action == "child" and data == RETRIED]
        ids = [run.child_id(token.child) for token in again if token is not None]
        for row in (await self._services.outputs(ids)).values() if ids else ():
            self._children.left_by(row)

    async def resume_failed(self) -> None:
        """Continue an instance that had failed and was retried: arm its waits again, and resume its incidents."""
        run, claim = self._run, self._claim
        run.state.failed, run.state.thrown = False, None
        known = {wait.id for wait in claim.waits}
        self._arm_again(known)
        waiting = {run.wait_id(id) for id in run.catchers} | {run.wait_id(0)}
        run.disarmed += [number_of(id) for id in known - waiting]
        await self._resume_children()
        await self.resume_incidents()

    def _arm_again(self, known: set[str]) -> None:
        """Arm the waits that the failing activation could not arm."""
        run = self._run
        for catcher in list(run.catchers.values()):
            if run.wait_id(catcher.id) in known:
                continue
            event = run.graph.events[catcher.node]
            if event is None:  # the awakeable was not created either: ask again
                token = run.tokens[catcher.token]
                run.forget_catcher(catcher)
                self._start_over(token, "body")
            elif arm := event.wait(run, catcher, again=not run.graph.nodes[catcher.node].interrupting):
                run.arm(catcher, arm)

    async def _resume_children(self) -> None:
        """Take the ends that came while the instance had failed: they were not delivered, and are read from the
        rows."""
        run = self._run
        beginning = {token.id for action, token, _ in run.work if action == "child" and token is not None}
        tokens = [
            token
            for token in run.tokens.values()
            if token.child and token.id not in run.stopped and token.id not in beginning
        ]
        rows = await self._services.outputs([run.child_id(token.child) for token in tokens]) if tokens else {}
        for token in tokens:
            row = rows.get(run.child_id(token.child))
            if row is None:
                run.push("child", token)
            elif row.status == "cancelled":
                self._children.left_by(row)
                run.push("child", token, RETRIED)
            elif row.status in ("done", "failed"):
                self._children.ended(token, row, None)

    async def resume_incidents(self) -> None:
        """Let every token go on that has an incident, with the action that failed."""
        run = self._run
        incidents, run.state.incidents, run.stopped = run.state.incidents, [], set()
        stuck = [run.tokens.get(incident.token) for incident in incidents if incident.resume == "child"]
        children = [run.child_id(token.child) for token in stuck if token is not None and token.child]
        rows = await self._services.outputs(children) if children else {}
        for incident in reversed(incidents):
            token = run.tokens.get(incident.token)
            match incident.resume:
                case "conditions":
                    self._look_again(incident)
                case "fire":
                    run.push("fire", None, tuple(incident.data))
                case "work":
                    pass  # its actions were kept
                case "arm":
                    run.state.unarmed.append(Unarmed(*incident.data))
                case _ if token is None:
                    pass
                case "child":
                    self._resume_child(token, rows.get(run.child_id(token.child)), incident)
                case "enter" | "body" as action:
                    self._start_over(token, action)
                case action:
                    run.push(action, token, incident.data)

    def _look_again(self, incident: Incident) -> None:
        """Look at all conditions again after one could not be evaluated: any other variable may have been set while the
        instance had failed."""
        run = self._run
        changes = [VariableChange(*change) for change in incident.data]
        known = {(change.scope, change.name) for change in changes}
        layers = [(id, scope.variables if id else run.state.variables) for id, scope in run.scopes.items()]
        others = [(id, name) for id, layer in layers for name in layer if (id, name) not in known]
        run.changes += [*changes, *(VariableChange(id, name, "update") for id, name in others)]

    def _resume_child(self, token: FlowToken, row: TaskOutput | None, incident: Incident) -> None:
        """Run a child again that has failed, or start it if it could not be started. A called process may have been
        retried itself: then it runs, or is done."""
        if row is None:
            self._run.push("child", token)
        elif row.status == "done":
            self._children.ended(token, row, None)
        elif row.status in ("failed", "cancelled"):
            self._children.left_by(row)
            self.resumed[token.id] = incident
            self._run.push("child", token, RETRIED)

    def _start_over(self, token: FlowToken, action: Literal["enter", "body"]) -> None:
        run = self._run
        if action == "enter":
            run.disarm_token(token)
        if token.local:
            run.remove_scope(token.local)
            token.local = 0
        run.push(action, token)
