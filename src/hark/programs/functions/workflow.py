"""Durable functions: `@workflow` on an `async def`.

Reads the function's signature once. An input that is a dict becomes the keyword arguments, any other value the
one positional argument, None no argument. Where the code is known, a start checks the input against the
signature.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, overload

from hark.model import json
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.names import check_name, check_queue, version_problem
from hark.programs.functions.function_context import FunctionContext
from hark.programs.functions.function_program import FunctionProgram

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[P, Coroutine[Any, Any, R]]


class Workflow(Generic[P, R]):
    """A durable function, as `@workflow` returns it. Start it with `app.start(it, input)`.

    Called directly, it is the undecorated function. P are the parameters of the function, R is its result type.

    Args:
        function: The `async def` that was decorated.
        name: The name of the definition; None takes the function's.
        version: The version of the definition.
        queue: The queue its instances run in.

    Raises:
        InvalidDefinition: The function is not an `async def`, takes no context, or the version is not valid.
        InvalidInput: The name or the queue is empty or over 255 bytes.
    """

    def __init__(self, function: Function[P, R], name: str | None, version: int, queue: str) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidDefinition(f"@workflow decorates an `async def`, not {function!r}.")
        label = check_name(function.__name__ if name is None else name, "workflow name")
        if problem := version_problem(version):
            raise InvalidDefinition(f"Workflow {label}: {problem}.")
        self.__wrapped__ = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        codec = ArgumentsCodec(label, function)
        self.__hark_program__ = FunctionProgram(
            name=label,
            version=version,
            queue=check_queue(queue),
            codec=codec,
            function=function,
            begin=codec.begin,
            context=FunctionContext,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.__hark_program__.name} version {self.__hark_program__.version}>"


@overload
def workflow(function: Function[P, R]) -> Workflow[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, version: int = 1, queue: str = "default"
) -> Callable[[Function[P, R]], Workflow[P, R]]: ...
def workflow(function: Any = None, *, name: str | None = None, version: int = 1, queue: str = "default") -> Any:
    """Make an `async def` a durable function: `@workflow`, or `@workflow(name="deploy", version=2, queue="ops")`.

    The first parameter of the function is its FunctionContext. A dict as input becomes the other parameters by name,
    any other value the one positional argument, None no argument. A parameter annotated with a dataclass, msgspec
    Struct or pydantic model gets an object of that type.

    Args:
        function: The `async def`, if the decorator is used without arguments.
        name: The name of the definition; the default is the name of the function.
        version: A whole number from 0. Instances finish on the version they were started with.
        queue: The queue its instances run in, unless a start says otherwise.

    Returns:
        A Workflow to pass to `app.register`, `app.start` or `ctx.call`; with options, a decorator.

    Raises:
        InvalidDefinition: It is not an `async def`, takes no context, or the version is not a whole number from 0.
        InvalidInput: The name or the queue is empty or over 255 bytes.

    Example:
        @workflow
        async def greet(ctx: FunctionContext, name: str) -> str:
            await ctx.sleep(60)
            return await ctx.run(send_greeting, name)

        handle = await app.start(greet, {"name": "Ann"})
    """
    if function is not None:
        return Workflow(function, name, version, queue)
    return lambda inner: Workflow(inner, name, version, queue)


def program_of(definition: Any) -> FunctionProgram | None:
    """The program of a durable function; None for anything else."""
    return definition.__hark_program__ if isinstance(definition, Workflow) else None


class ArgumentsCodec:
    """Turns the input of an instance into the arguments of its function (see InputCodec)."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise InvalidDefinition(f"Workflow {name} takes no context. Write `async def {name}(ctx, …)`.")
        self._parameters = parameters[1:]
        self._signature = inspect.Signature(self._parameters)
        self._readers: dict[str, json.Codec[Any]] = {}

    def prepare(self) -> ArgumentsCodec:
        """Resolve the type hints: a parameter annotated with a dataclass, Struct or model gets an object of it."""
        try:
            hints = typing.get_type_hints(self._function)
        except Exception as cause:
            raise InvalidDefinition(
                f"The type hints of workflow {self._name} cannot be resolved: {cause}. "
                "Define those types at module level."
            ) from cause
        for parameter in self._parameters:
            hint = hints.get(parameter.name)
            if inspect.isclass(hint) and json.is_typed(hint):
                self._readers[parameter.name] = json.Codec(hint).prepare()
        return self

    def build(self, value: object = None, *, limit: int | None = None, what: str = "input") -> str:
        """The input as text, after a check that the function accepts it."""
        text = json.dump_unchecked({} if value is None else value, limit=limit, what=what)
        args, kwargs = self._arguments(text)
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as cause:
            raise self._mismatch(cause) from cause
        json.check_input(value, args[0] if args else kwargs, f"{what} of {self._name}")
        return text

    def dump(self, value: str, limit: int | None = None) -> str:
        return value

    def begin(self, context: Any, text: str) -> Coroutine[Any, Any, Any]:
        """Create the coroutine of the function; nothing of it has run yet.

        Raises:
            InvalidInput: The function does not accept this input.
        """
        args, kwargs = self._arguments(text)
        try:
            return self._function(context, *args, **kwargs)  # type: ignore[no-any-return]
        except TypeError as cause:  # raised by the call itself: the body of a coroutine function has not begun
            raise self._mismatch(cause) from cause

    def _arguments(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        value = json.load_for_code(text)
        codec = self._codec_of_only_parameter(value)
        if codec is not None:
            return (codec.restore(value, f"input of {self._name}"),), {}
        if isinstance(value, dict):
            return (), {name: self._typed(name, item) for name, item in value.items()}
        first = self._parameters[0].name if self._parameters else ""
        return (self._typed(first, value),), {}

    def _typed(self, name: str, value: Any) -> Any:
        codec = self._readers.get(name)
        return value if codec is None else codec.restore(value, f"argument {name!r}")

    def _mismatch(self, cause: TypeError) -> InvalidInput:
        return InvalidInput(
            f"The input does not match workflow {self._name}: {cause}. It takes {self._signature}; "
            "give its keyword arguments as a dict, its only argument as another value, or None for no argument."
        )

    def _codec_of_only_parameter(self, value: Any) -> json.Codec[Any] | None:
        """The codec of the only, typed parameter: a dict may be the object for it instead of the keyword arguments."""
        if len(self._parameters) != 1 or not isinstance(value, dict) or self._parameters[0].name in value:
            return None
        return self._readers.get(self._parameters[0].name)
