"""Machines: a class with one method per step.

Reads the class into a StepProgram when the class is defined, and rejects mistakes that are visible there: no
initial step, two steps with the same name, a `then=` that names no step.
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
from hark.model.names import check_name, check_queue, version_problem
from hark.model.outcomes import KEEP, Outcome, Stop
from hark.programs.machines.steps import Context, StepFunction, StepProgram

F = TypeVar("F", bound=Callable[..., Any])

_INITIAL = "start"  # the initial step of a machine that names no other


@overload
def step(function: F) -> F: ...
@overload
def step(function: str) -> Callable[[F], F]: ...
def step(function: Any) -> Any:
    """Mark a method of a Machine as a step: `@step`, or `@step("other name")`.

    The method takes `ctx` and returns an outcome: Next, Retry, Await, Spawn, Done or Stop. An `async def` runs on the
    worker's event loop, a `def` in a thread.

    Args:
        function: The method; or the name of the step, if it is not the name of the method.

    Returns:
        The method itself, marked; for a name, a decorator that does that.

    Raises:
        InvalidDefinition: It is neither a method nor a name.
        InvalidInput: The name is empty or over 255 bytes.

    Example:
        @step
        async def ship(self, ctx: Context[State]) -> Outcome:
            return Done({"order": ctx.state.order})
    """
    if isinstance(function, str):
        name = check_name(function, "step name")

        def mark(inner: F) -> F:
            inner.__hark_step__ = name  # type: ignore[attr-defined]
            return inner

        return mark
    if not callable(function):
        raise InvalidDefinition(f'@step decorates a method, or takes a name: @step("ship"). It was given {function!r}.')
    function.__hark_step__ = check_name(function.__name__, "step name")
    return function


class Machine:
    """A durable state machine. Subclass it, mark methods with `@step`, and return outcomes from them.

    Class arguments:
        name: The name of the definition; the default is the name of the class.
        version: A whole number from 0. Instances finish on the version they were started with.
        queue: The queue its instances run in, unless a start says otherwise.
        initial: The step that a start begins with; the default is `start`.
        state: The type of the state; the default is the class's own `State`. It is a dataclass, msgspec Struct or
            pydantic model, built from the input of `Hark.start`. Without it, the state is plain JSON.
        on_cancel: The step that a cancel goes to, instead of ending the instance at once. The step may continue like
            any other; however it ends, the instance is `cancelled` then. Subclasses inherit it; None removes it.

    A class without a step `start`, and without `initial=`, is a base class: its subclasses inherit its steps, `State`
    and `handle`, and its steps may lead to steps that only they have. Registering or starting it raises
    InvalidDefinition.

    Defining the class raises InvalidDefinition if `initial=`, `on_cancel=`, a `Next` or a `then=` names no step, if it
    has two steps with the same name, or a version that is not valid. It raises InvalidInput if the name or the queue is
    empty or over 255 bytes.

    Example:
        class Checkout(Machine, version=1, queue="checkout"):
            @dataclass
            class State:
                order: int

            @step
            async def start(self, ctx: Context[State]) -> Outcome:
                return Await("paid", then=self.ship, timeout=3600)

            @step
            async def ship(self, ctx: Context[State]) -> Outcome:
                return Stop("not paid in time") if ctx.timed_out else Done({"order": ctx.state.order})

            def handle(self, error: Exception, ctx: Context[State]) -> Outcome:
                return Retry(1.0) if ctx.attempt < 5 else Stop(error)
    """

    __hark_program__: ClassVar[StepProgram | None] = None
    __hark_on_cancel__: ClassVar[str | None] = None

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        initial: str | None = None,
        state: type | None = None,
        on_cancel: Any = KEEP,  # a step's name or None
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if on_cancel is not KEEP:
            cls.__hark_on_cancel__ = on_cancel
        steps = _steps(cls)
        if not steps:
            cls.__hark_program__ = None  # a base class of machines: it cannot be started
            return
        label = check_name(cls.__name__ if name is None else name, "machine name")
        if problem := version_problem(version):
            raise _invalid(cls, f"{problem}.")
        if initial is None and _INITIAL not in steps:
            cls.__hark_program__ = None  # a base class that has steps
            return
        initial = _INITIAL if initial is None else initial
        if initial not in steps:
            raise _without_initial(cls, initial)
        _check_targets(cls, steps)
        undo = cls.__hark_on_cancel__
        if undo is not None and (not isinstance(undo, str) or undo not in steps):
            raise _invalid(cls, f"on_cancel={undo!r} is not one of its steps: {', '.join(steps)}. Add it with @step.")
        handle = inspect.getattr_static(cls, "handle")
        cls.__hark_program__ = StepProgram(
            name=label,
            version=version,
            queue=check_queue(queue),
            initial=initial,
            codec=Codec(state or getattr(cls, "State", None)),
            steps=steps,
            machine=None,
            handle=None if handle is Machine.__dict__["handle"] else handle,
            on_cancel=undo,
        )

    def handle(self, error: Exception, ctx: Context[Any]) -> Outcome:
        """Decide what happens after an error in a step. Override it; it may be `def` or `async def`.

        It is called for every error of a step: an exception it raised, a return value that is not an outcome, a state
        or result that cannot be stored. If `handle` raises too, the instance fails with both errors.

        Args:
            error: The error.
            ctx: The context, with the state as it was before the step.

        Returns:
            Any outcome. This default is `Stop(error)`.
        """
        return Stop(error)


def program_of(machine: Any) -> StepProgram | None:
    """The program of a Machine class; None for anything else. The machine is instantiated on first use."""
    if not (isinstance(machine, type) and issubclass(machine, Machine)):
        return None
    program = machine.__hark_program__
    if program is None:
        if _steps(machine):
            raise _without_initial(machine, _INITIAL)
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
            raise _invalid(cls, f"it has two steps named {name!r}: {methods[name]} and {attribute}. Rename one.")
        methods[name] = attribute
        steps[name] = StepFunction(function, asyncio.iscoroutinefunction(function))
    return steps


def _without_initial(cls: type, initial: str) -> InvalidDefinition:
    return _invalid(cls, f"it has no initial step {initial!r}. Mark it with @step, or name another one with initial=.")


def _invalid(cls: type, problem: str) -> InvalidDefinition:
    return InvalidDefinition(f"Machine {cls.__name__}: {problem}", problems=[problem])


def _check_targets(cls: type, steps: dict[str, StepFunction]) -> None:
    """Check the steps named in `Next(…)` and `then=…`, as far as the source is available and names them literally."""
    for name, function in steps.items():
        if _is_checked(cls, function):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function.function)))
        except (OSError, SyntaxError, TypeError):
            continue
        for target in _targets(tree):
            if isinstance(target, ast.Constant) and isinstance(target.value, str) and target.value not in steps:
                raise _invalid(
                    cls,
                    f"step {name!r} leads to {target.value!r}, which is not one of its steps: {', '.join(steps)}. "
                    "Correct the name, or add the step.",
                )
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                method = inspect.getattr_static(cls, target.attr, None)
                if method is None or (callable(method) and not hasattr(method, "__hark_step__")):
                    raise _invalid(
                        cls,
                        f"step {name!r} leads to self.{target.attr}, which is not one of its steps. Is @step missing?",
                    )


def _is_checked(cls: type, step: StepFunction) -> bool:
    """Return True if a machine that can be started has checked this step. A base class has not: it may lack steps."""
    owner = next(base for base in cls.__mro__ if any(value is step.function for value in vars(base).values()))
    return owner is not cls and vars(owner).get("__hark_program__") is not None


def _targets(tree: ast.AST) -> list[ast.expr]:
    """The expressions that name the next step of an outcome."""
    targets: list[ast.expr] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("Next", "Await", "Spawn")
        ):
            targets.extend(keyword.value for keyword in node.keywords if keyword.arg in ("then", "step"))
            if node.func.id == "Next":
                targets.extend(node.args[:1])
            if node.func.id == "Spawn":
                targets.extend(node.args[1:2])
    return targets
