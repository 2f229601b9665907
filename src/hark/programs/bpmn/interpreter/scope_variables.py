"""The variables that a scope sees: its own, and those of the scopes around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hark.programs.bpmn.bpmn_spec import ChangeKind


class VariableChange(NamedTuple):
    """A change of a variable, for the conditions that wait for it.

    Attributes:
        scope: The scope that has the variable.
        name: Its name.
        kind: Whether it is new.
    """

    scope: int
    name: str
    kind: ChangeKind


class Variables(Mapping[str, Any]):
    """Several layers of variables as one: the first layer that has a name counts."""

    __slots__ = ("layers",)

    def __init__(self, layers: list[dict[str, Any]]) -> None:
        self.layers = layers

    def __getitem__(self, name: str) -> Any:
        for layer in self.layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(name in layer for layer in self.layers)

    def __iter__(self) -> Iterator[str]:
        return iter(flattened(self.layers))

    def __len__(self) -> int:
        return len(flattened(self.layers))


def flattened(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """All variables of some layers as one object."""
    flat: dict[str, Any] = {}
    for layer in reversed(layers):
        flat |= layer
    return flat


def assigned(old: Any, path: list[str], value: Any) -> Any:
    """Return a value with one part replaced: `["total"]` of `{"id": 1}` gives `{"id": 1, "total": value}`."""
    if not path:
        return value
    part = old if isinstance(old, dict) else {}
    return {**part, path[0]: assigned(part.get(path[0]), path[1:], value)}


def set_local(variables: dict[str, Any], target: str, value: Any) -> None:
    """Set a variable of an object, or a part of one: `order.total`."""
    name, *path = target.split(".")
    for part in reversed(path):
        value = {part: value}
    old = variables.get(name)
    variables[name] = _merged(old, value) if path and isinstance(old, dict) else value


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        merged[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def as_name(value: Any, what: str) -> str:
    """The value of an expression as a name, a code or a key.

    Raises:
        StuckToken: It is null, or a list or an object.
    """
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise StuckToken(f"the {what} is {'empty' if value == '' else _kind(value)}; it has to be a text")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true or false", list: "a list", dict: "an object"}.get(type(value), "not a text")


class StuckToken(Exception):
    """A token cannot go on: what it needs is not there, or wrong. It fails the instance, which can be retried.

    Attributes:
        resume: The action that a retry repeats, if it is not the one that failed: a part of that is done already.
    """

    def __init__(self, text: str, resume: str | None = None) -> None:
        super().__init__(text)
        self.resume = resume
