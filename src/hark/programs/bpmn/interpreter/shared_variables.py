"""SharedVariables: the variables of a process, as the handler of one of its tasks sees them.

Thousands of tasks may run beside the same large variables, which are decoded once for all of them. A handler may change
what it gets, so a list or an object among them is copied, but only when the handler reads it.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from hark.model.byte_values import restore


class SharedVariables(dict[str, Any]):
    """A dict for one handler, made of variables that others have too. What is read of it is the handler's own."""

    def __init__(self, shared: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        super().__init__(shared)
        dict.update(self, local)
        self._shared = {name for name, value in shared.items() if isinstance(value, dict | list)} - local.keys()

    def _own(self, name: str) -> None:
        if name in self._shared:
            self._shared.discard(name)
            dict.__setitem__(self, name, _copy(dict.__getitem__(self, name)))

    def _own_all(self) -> None:
        for name in list(self._shared):
            self._own(name)

    def __getitem__(self, name: str) -> Any:
        self._own(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:  # with a method of its own, dict(x) and {**x} read the values one by one
        return super().__iter__()

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._shared.discard(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._shared.discard(name)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __ior__(self, other: Any) -> Any:
        self._own_all()
        return super().__ior__(other)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def get(self, name: str, default: Any = None) -> Any:
        self._own(name)
        return super().get(name, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._own_all()
        return super().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._own_all()
        return super().values()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def pop(self, name: str, *default: Any) -> Any:
        self._own(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        self._own_all()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:
        self._own(name)
        return super().setdefault(name, default)

    def update(self, *args: Any, **values: Any) -> None:
        self._own_all()
        super().update(*args, **values)


def _copy(value: Any) -> Any:
    """A copy with bytes for their JSON form."""
    if isinstance(value, dict):
        if len(value) == 1 and (data := restore(value)) is not value:
            return data if isinstance(data, bytes) else _copy(data)
        return {name: _copy(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_copy(one) for one in value]
    return value
