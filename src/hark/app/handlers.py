"""Register handlers and gates: the code of an app that jobs name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hark.app.core import Core
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.lanes import gate_lane, handler_name, lane_name_problem, task_lane
from hark.model.names import check_name

F = TypeVar("F", bound=Callable[..., Any])


class HandlerVerbs(Core):
    """Registering the code that jobs name."""

    def handler(self, name: str) -> Callable[[F], F]:
        """Register the handler of tasks that name it. A worker of this app runs these tasks.

        Args:
            name: The name that jobs use: `handler: NAME`; for a process the type, topic, class, delegate, name or id
                of a task. The delegate `${bean}` is the name `bean`.

        Returns:
            A decorator for a function, `async def` or `def`, that takes a `TaskContext`. It returns an output, or what
            `complete`, `fail`, `continue_` or `pause` of the context returns.

        Raises:
            InvalidInput: The name is malformed.
            InvalidDefinition: Another handler has this name.

        Example:
            @app.handler("resize-image")
            async def resize_image(task):
                return {"url": await resize(task.input["url"])}
        """
        from hark.programs.jobs.tasks.task_program import TaskProgram  # only processes with jobs need it

        name = handler_name(_checked(name, "handler"))
        lane = task_lane(name)

        def register(function: F) -> F:
            known = self._registry.lanes().get(lane) and self._registry.program(lane)
            if not (isinstance(known, TaskProgram) and known.handler is function):
                self._registry.add_lane(lane, TaskProgram(name, _callable(function, "handler")))
            return function

        return register

    def gate(self, name: str) -> Callable[[F], F]:
        """Register a gate that tasks name: it decides whether the output of a task is accepted.

        Args:
            name: The name that jobs use: `gate: NAME`.

        Returns:
            A decorator for a function, `async def` or `def`, that takes the output of the task and the inputs of the
            job. It returns True to accept the output, False or the reason, a text, to reject it.

        Raises:
            InvalidInput: The name is malformed, or is that of a gate that Hark has itself.
            InvalidDefinition: Another gate has this name.

        Example:
            @app.gate("tests-pass")
            def tests_pass(output, inputs):
                return True if output["failed"] == 0 else f"{output['failed']} tests failed"
        """
        from hark.programs.jobs.job_graph import APPROVAL_GATE
        from hark.programs.jobs.tasks.gates import GateProgram

        lane = gate_lane(_checked(name, "gate"))
        if name == APPROVAL_GATE or "{{" in name:
            raise InvalidInput(f"A gate cannot be called {name!r}: Hark has it already. Use another name.")

        def register(function: F) -> F:
            known = self._registry.lanes().get(lane) and self._registry.program(lane)
            if not (isinstance(known, GateProgram) and known.gate is function):
                self._registry.add_lane(lane, GateProgram(name, _callable(function, "gate")))
            return function

        return register


def _checked(name: str, what: str) -> str:
    problem = lane_name_problem(check_name(name, f"name of a {what}"), what)
    if problem is not None:
        raise InvalidInput(problem)
    return name


def _callable(function: F, what: str) -> F:
    if not callable(function):
        raise InvalidDefinition(f"@app.{what}(…) needs a function, not {function!r}.")
    return function
