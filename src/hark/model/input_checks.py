"""Find values that do not survive a JSON round trip.

JSON has no sets, bytes, dates or decimals. Written without a type that restores them, they come back as lists and
text that look alike, and the code that reads them fails much later: they are refused where they are written. Keys
without a field in a type would be dropped: the input of a start is refused with the key. A dataclass, Struct or model
among plain values is another matter: it is given to be written as JSON, with everything in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

_ADVICE: dict[tuple[type, ...], str] = {
    (set, frozenset): "a list; write a list yourself",
    (bytes, bytearray, memoryview): "text; write base64 yourself",
    (date, time): "text; write .isoformat() yourself",  # a datetime is a date
    (timedelta,): "text; write .total_seconds() yourself",
    (Decimal,): "text; write str() yourself",
}
_LOSSY = tuple(kind for kinds in _ADVICE for kind in kinds)
_LISTS = (list, tuple)
_ATOMS = frozenset((str, int, float, bool, type(None)))
_MISSING: Any = object()


def is_equal(value: Any, back: Any) -> bool:
    """Return True if nothing was changed; this comparison is much faster than the search for a change."""
    try:
        return bool(value == back)
    except Exception:  # of the user's own __eq__
        return False


def look_alike(value: Any, back: Any) -> str | None:
    """The first part of a value that would come back as something else, as a message; None if there is none.

    Args:
        value: What is written.
        back: What is read back.
    """
    found = _changed(value, back, "$")
    if found is None:
        return None
    path, part = found
    kind = type(part)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    advice = next(advice for kinds, advice in _ADVICE.items() if isinstance(part, kinds))
    return (
        f"contains {name} at {path}, which would be read back as {advice}, or use a dataclass, msgspec Struct or "
        "pydantic model that has a field of this type"
    )


def _changed(value: Any, back: Any, path: str) -> tuple[str, Any] | None:
    """The first part that would come back as something else, with its path."""
    if type(value) in _ATOMS:
        return None
    if isinstance(value, _LOSSY):
        return None if isinstance(back, _LOSSY) else (path, value)
    pairs: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str and isinstance(key, _LOSSY) and isinstance(back, dict) and key not in back:
                return f"{path}.{key}", key
        pairs = ((f".{key}", inner, _member(back, key)) for key, inner in value.items() if type(inner) not in _ATOMS)
    elif isinstance(value, _LISTS):
        if isinstance(back, _LISTS):
            pairs = _items(value, back)
    elif type(value) is type(back):
        pairs = ((f".{name}", getattr(value, name, None), getattr(back, name, None)) for name in field_names(value))
    for step, inner, other in pairs:
        if type(inner) in _ATOMS or other is _MISSING or is_equal(inner, other):
            continue
        if found := _changed(inner, other, path + step):
            return found
    return None


def unknown_key(value: Any, back: Any, path: str = "$") -> str | None:
    """The path of the first key of an input that the type it was read as does not have; None if there is none.

    A pydantic model that sets `extra` decides by itself, and so does one with a validator that sees the whole input.
    """
    if type(value) in _ATOMS:
        return None
    pairs: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(value, dict):
        if type(back) is dict:  # a TypedDict drops keys, other dicts do not
            known: Mapping[Any, Any] | None = dict.fromkeys(back) if len(back) < len(value) else None
        else:
            kind: Any = type(back)
            known = _known_keys(kind)
        if known is not None:
            for key in value:
                if key not in known:
                    return f"{path}.{key}"
        pairs = (
            (f".{key}", inner, _member(back, key if known is None else known[key] or key))
            for key, inner in value.items()
            if type(inner) not in _ATOMS
        )
    elif isinstance(value, _LISTS) and isinstance(back, _LISTS):
        pairs = _items(value, back)
    for step, inner, other in pairs:
        if not is_equal(inner, other) and (found := unknown_key(inner, other, path + step)):
            return found
    return None


def _items(value: Any, back: Any) -> Iterable[tuple[str, Any, Any]]:
    """The items of two lists side by side, with their path; without those that cannot have lost anything."""
    if _ATOMS.issuperset(map(type, value)):
        return ()
    both = enumerate(zip(value, back, strict=False))
    return ((f"[{n}]", one, other) for n, (one, other) in both if type(one) not in _ATOMS)


def _member(back: Any, key: Any) -> Any:
    """The value of this key after it was read back: an item of a dict, or a field of an object."""
    if isinstance(back, dict):
        return back.get(key, _MISSING if isinstance(key, str) else back.get(str(key), _MISSING))
    return getattr(back, key, _MISSING) if isinstance(key, str) and key in field_names(back) else _MISSING


@lru_cache(maxsize=1024)
def _known_keys(kind: Any) -> Mapping[Any, str] | None:
    """The keys that JSON may have for an object of this class, with the names of their fields; None for any key."""
    if is_pydantic(kind):
        return _model_keys(kind)
    if (encoded := getattr(kind, "__struct_encode_fields__", None)) is not None:
        keys = dict(zip(encoded, kind.__struct_fields__, strict=True))
        tag = kind.__struct_config__.tag_field
        return keys if tag is None else {**keys, tag: tag}
    names = _class_fields(kind)
    return {name: name for name in names} if names else None


def _model_keys(kind: Any) -> Mapping[Any, str] | None:
    validators = kind.__pydantic_decorators__.model_validators.values()
    if "extra" in kind.model_config or any(one.info.mode != "after" for one in validators):
        return None
    keys: dict[Any, str] = {name: name for name in kind.model_computed_fields}  # as `model_dump` writes them
    for name, field in kind.model_fields.items():
        keys[name] = name
        for alias in (field.alias, field.validation_alias):
            for choice in getattr(alias, "choices", (alias,)):
                keys[choice if isinstance(choice, str) or choice is None else choice.path[0]] = name
    return keys


def has_plain_parts(type: Any) -> bool:
    """Return True if a value of this type can contain plain JSON (Any, a bare dict), where look-alikes are possible."""
    if is_pydantic(type):
        return True
    import msgspec.inspect  # once per type; most programs start without it

    seen: set[int] = set()

    def search(part: Any) -> bool:
        if isinstance(part, msgspec.inspect.AnyType | msgspec.inspect.CustomType):
            return True
        if isinstance(part, tuple):
            return any(search(one) for one in part)
        if not isinstance(part, msgspec.Struct) or id(part) in seen:
            return False
        seen.add(id(part))
        return any(search(getattr(part, name)) for name in part.__struct_fields__ if name != "cls")

    try:
        return search(msgspec.inspect.type_info(type))
    except Exception:  # a type that msgspec can read and not describe
        return True


def field_names(value: Any) -> list[str]:
    """The fields of a dataclass, Struct, attrs class or pydantic model; none for anything else."""
    return [name for name, _ in value] if is_pydantic(type(value)) else _class_fields(type(value))


def _class_fields(kind: Any) -> list[str]:
    attrs = [field.name for field in getattr(kind, "__attrs_attrs__", ())]
    return attrs or list(getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ())))


def is_pydantic(type: Any) -> bool:
    # By its attributes: importing pydantic costs more than all of Hark, and most programs do not use it.
    return hasattr(type, "__pydantic_validator__") and hasattr(type, "model_dump_json")
