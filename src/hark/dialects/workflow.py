"""Durable functions: `@workflow` on an `async def`.

Reads the function's signature once. An input that is a dict becomes keyword arguments, any other value the
one positional, None no argument; what does not fit is refused when it is started, where the code is known.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, overload

from hark.model import json
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.names import check_name
from hark.programs.functions import FunctionContext
from hark.programs.replay import FunctionProgram

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[P, Coroutine[Any, Any, R]]


class Workflow(Generic[P, R]):
    """A durable function: start it with `app.start(it, input)`. Called like any function it is just that."""

    def __init__(self, function: Function[P, R], name: str | None, version: int, queue: str) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidDefinition(f"@workflow goes on an `async def`, not on {function!r}.")
        label = check_name(function.__name__ if name is None else name, "workflow name")
        if type(version) is not int or not 0 <= version < 2**31:
            raise InvalidDefinition(f"Workflow {label}: version={version!r}: give a whole number from 0.")
        self.__wrapped__ = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        codec = ArgumentsCodec(label, function)
        self.__hark_program__ = FunctionProgram(
            name=label,
            version=version,
            queue=check_name(queue, "queue name"),
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
    """Make an `async def` durable: `@workflow`, or `@workflow(name="deploy", version=2, queue="ops")`."""
    if function is not None:
        return Workflow(function, name, version, queue)
    return lambda inner: Workflow(inner, name, version, queue)


def program_of(definition: Any) -> FunctionProgram | None:
    """The program of a durable function; None for anything else."""
    return definition.__hark_program__ if isinstance(definition, Workflow) else None


class ArgumentsCodec:
    """How an input becomes the arguments of a function."""

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
        """Resolve the hints: a parameter that is a dataclass, Struct or model gets one."""
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
        """The input as text, once it is known to fit."""
        text = json.dump({} if value is None else value, limit=limit, what=what)
        args, kwargs = self._given(text)
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as cause:
            raise self._unfit(cause) from cause
        return text

    def dump(self, value: str, limit: int | None = None) -> str:
        return value

    def begin(self, context: Any, text: str) -> Coroutine[Any, Any, Any]:
        """The coroutine, begun by nobody yet."""
        try:
            args, kwargs = self._given(text)
            return self._function(context, *args, **kwargs)  # type: ignore[no-any-return]
        except InvalidInput as error:
            return _raise(error)
        except TypeError as cause:  # of the call: nothing of a coroutine function runs before it is awaited
            return _raise(self._unfit(cause))

    def _given(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        value = json.load(text)
        whole = self._whole(value)
        if whole is not None:
            return (whole.build(value, what=f"input of {self._name}"),), {}
        if isinstance(value, dict):
            return (), {name: self._typed(name, item) for name, item in value.items()}
        first = self._parameters[0].name if self._parameters else ""
        return (self._typed(first, value),), {}

    def _typed(self, name: str, value: Any) -> Any:
        codec = self._readers.get(name)
        return value if codec is None else codec.build(value, what=f"argument {name!r}")

    def _unfit(self, cause: TypeError) -> InvalidInput:
        return InvalidInput(
            f"The input does not fit workflow {self._name}: {cause}. It takes {self._signature}; "
            "a dict is its keyword arguments, another value the one argument, None no argument."
        )

    def _whole(self, value: Any) -> json.Codec[Any] | None:
        """The one typed parameter may be given as such: its object, or the dict that object is in JSON."""
        if len(self._parameters) != 1 or not isinstance(value, dict) or self._parameters[0].name in value:
            return None
        return self._readers.get(self._parameters[0].name)


async def _raise(error: Exception) -> Any:
    raise error
