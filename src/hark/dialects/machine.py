"""Machines: a class with one method per step.

Reads the class once, when it is made, into a StepProgram; refuses what can be seen to be wrong there: no
initial step, two steps of one name, a `then=` that leads nowhere.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, overload

from hark.model.errors import InvalidDefinition
from hark.model.json import Codec
from hark.model.names import check_name
from hark.model.outcomes import Outcome, Stop
from hark.programs.steps import Context, StepFunction, StepProgram

F = TypeVar("F", bound=Callable[..., Any])


@overload
def step(function: F) -> F: ...
@overload
def step(function: str) -> Callable[[F], F]: ...
def step(function: Any) -> Any:
    """Mark a method as a step, named by the method or `@step("other name")`."""
    if isinstance(function, str):
        name = check_name(function, "step name")

        def mark(inner: F) -> F:
            inner.__hark_step__ = name  # type: ignore[attr-defined]
            return inner

        return mark
    if not callable(function):
        raise InvalidDefinition(f'@step goes on a method, or takes its name: @step("ship"), not {function!r}.')
    function.__hark_step__ = check_name(function.__name__, "step name")
    return function


class Machine:
    """A durable state machine. Subclass it, mark methods with `@step`, return outcomes.

    class Checkout(Machine, version=1, queue="checkout"): …   also name=, initial="start", state=
    """

    __hark_program__: ClassVar[StepProgram | None] = None

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        initial: str = "start",
        state: type | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        steps = _steps(cls)
        if not steps:
            cls.__hark_program__ = None  # a base class for machines: nothing to run yet
            return
        label = check_name(cls.__name__ if name is None else name, "machine name")
        if type(version) is not int or not 0 <= version < 2**31:
            raise _invalid(cls, f"version={version!r}: give a whole number from 0.")
        if initial not in steps:
            raise _invalid(
                cls,
                f"has no step {initial!r} to begin with. Mark one with @step, or name another with initial=.",
            )
        _check_ways(cls, steps)
        handle = inspect.getattr_static(cls, "handle")
        cls.__hark_program__ = StepProgram(
            name=label,
            version=version,
            queue=check_name(queue, "queue name"),
            initial=initial,
            codec=Codec(state or getattr(cls, "State", None)),
            steps=steps,
            machine=None,
            handle=None if handle is Machine.__dict__["handle"] else handle,
        )

    def handle(self, error: Exception, ctx: Context) -> Outcome:
        """Decide what becomes of an error. Returns any outcome; this default stops."""
        return Stop(error)


def program_of(machine: Any) -> StepProgram | None:
    """The program of a Machine class, its machine made on first use; None for anything else."""
    if not (isinstance(machine, type) and issubclass(machine, Machine)):
        return None
    program = machine.__hark_program__
    if program is None:
        raise InvalidDefinition(f"{machine.__name__} has no steps. Mark its methods with @step.", problems=[])
    if program.machine is None:
        program.machine = machine()
    return program


def _steps(cls: type) -> dict[str, StepFunction]:
    steps: dict[str, StepFunction] = {}
    methods: dict[str, str] = {}
    for attribute in dir(cls):
        function = inspect.getattr_static(cls, attribute)
        name = getattr(function, "__hark_step__", None)
        if name is None:
            continue
        if name in steps:
            raise _invalid(cls, f"has two steps named {name!r}: {methods[name]} and {attribute}. Rename one.")
        methods[name] = attribute
        steps[name] = StepFunction(function, asyncio.iscoroutinefunction(function))
    return steps


def _invalid(cls: type, problem: str) -> InvalidDefinition:
    return InvalidDefinition(f"Machine {cls.__name__} {problem}", problems=[problem])


def _check_ways(cls: type, steps: dict[str, StepFunction]) -> None:
    """Follow the `Next(…)` and `then=…` that are plain to see; without the source there is nothing to see."""
    for name, function in steps.items():
        if function.function.__qualname__.rpartition(".")[0] != cls.__qualname__:
            continue  # inherited: checked where it was written
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function.function)))
        except (OSError, SyntaxError, TypeError):
            continue
        for way in _ways(tree):
            if isinstance(way, ast.Constant) and isinstance(way.value, str) and way.value not in steps:
                raise _invalid(cls, f"step {name!r} leads to {way.value!r}, which is no step of it.")
            if isinstance(way, ast.Attribute) and isinstance(way.value, ast.Name) and way.value.id == "self":
                target = inspect.getattr_static(cls, way.attr, None)
                if target is None or (callable(target) and not hasattr(target, "__hark_step__")):
                    raise _invalid(
                        cls,
                        f"step {name!r} leads to self.{way.attr}, which is no step of it. Is @step missing?",
                    )


def _ways(tree: ast.AST) -> list[ast.expr]:
    ways: list[ast.expr] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("Next", "Await", "Spawn")
        ):
            ways.extend(keyword.value for keyword in node.keywords if keyword.arg in ("then", "step"))
            if node.func.id == "Next":
                ways.extend(node.args[:1])
            if node.func.id == "Spawn":
                ways.extend(node.args[1:2])
    return ways
