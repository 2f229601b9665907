"""Read and write all JSON: decide which Python values and bytes are accepted, and how they are read back.

`dump` and `parse` refuse what some store, door or client could not carry unchanged: NaN and infinities, NUL,
lone surrogates, repeated keys, very deep nesting, too many bytes. `load` trusts the store. `Codec` does the
same for the typed state of a machine. Names and durations are checked in names.py.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Generic, TypeVar, cast

import msgspec

from hark.model.byte_values import MARK, BytesKey, as_json, restore
from hark.model.errors import (
    HarkError,
    InvalidDefinition,
    InvalidInput,
    InvalidState,
    MalformedJson,
    PayloadTooLarge,
)
from hark.model.input_checks import field_names, has_plain_parts, is_equal, is_pydantic, look_alike, unknown_key

T = TypeVar("T")

# Levels of [ and {. Python's recursion limit is 1000 frames, including those of the caller; pydantic reads 200.
DEPTH = 200
MAX_TEXT = 1 << 16  # bytes of JSON, of text that people read

_BROKEN = (ValueError, msgspec.MsgspecError)  # MsgspecError is a ValueError only since msgspec 0.21


load: Callable[[str | bytes], Any] = msgspec.json.Decoder().decode
"""The value of JSON text from the store, which was checked when it was written. Bytes are in their JSON form."""


def load_for_code(text: str) -> Any:
    """The value of JSON text from the store as Python code gets it: bytes are bytes."""
    return restore(load(text)) if MARK in text else load(text)


def _load_any(text: str | bytes) -> Any:
    return load_for_code(text if isinstance(text, str) else text.decode())


def dump(value: object, *, limit: int | None = None, what: str = "payload") -> str:
    """The JSON text of a Python value; `load` and `parse` read it back with the same meaning.

    Raises InvalidInput if there is no such text, PayloadTooLarge if it is over `limit` bytes; `what` names the value
    in the message. A set, a date or a Decimal among plain values has no such text (see input_checks.py). Bytes have
    their own form (byte_values.py), and `load_for_code` gives them back.
    """
    return _write(value, _encode, load, limit, what, InvalidInput, forms=True)


def dump_unchecked(value: object, *, limit: int | None = None, what: str = "payload") -> str:
    """Write JSON as `dump` does, but dates and the like may become text: for texts that people read, and for results,
    whose readers notice the change."""
    return _write(value, _encode, load, limit, what, InvalidInput, compare=False, forms=True)


def dump_typed(value: object, *, limit: int | None = None, what: str = "payload") -> str:
    """Write a value that is read back as types and compared by `check_input`. Bytes become base64 text, as fields of
    the type `bytes` expect it."""
    return _write(value, _encode, load, limit, what, InvalidInput, compare=False)


def check_input(value: object, back: object, what: str) -> None:
    """Raise InvalidInput if an input, read back as types, lost something: a type that has no JSON, or a key."""
    if is_equal(value, back):  # compared in C; the searches below are slow
        return
    flat = type(value) is dict and len(value) <= _FEW and _is_flat(value)
    if not flat and (problem := look_alike(value, back)):
        raise InvalidInput(f"The {what} {problem}")
    if path := unknown_key(value, back):
        raise InvalidInput(f"The {what} has the unknown key {path}; correct the name, or add the field to the type")


def check_text(text: str, what: str) -> str:
    """The text, which people read: a title, a reason. It may be empty.

    Raises InvalidInput if it is not text that every store can keep, PayloadTooLarge if it is over `MAX_TEXT` bytes.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"The {what} must be text, not {_type_name(type(text))}; pass a str")
    size = len(dump(text, what=what).encode())
    if size > MAX_TEXT:
        raise PayloadTooLarge(
            f"The {what} is {size} bytes of JSON and {MAX_TEXT} are allowed; shorten it", size=size, limit=MAX_TEXT
        )
    return text


def parse(data: bytes | str, *, limit: int | None = None, what: str = "body") -> Any:
    """The value of JSON text from outside.

    Raises MalformedJson, with the position if possible, or PayloadTooLarge if it is over `limit` bytes.
    """
    raw = _bytes(data, what)
    if limit is not None and len(raw) > limit:
        raise _too_large(what, len(raw), limit)
    if _too_deep(raw):
        raise MalformedJson(f"The {what} nests deeper than {DEPTH} levels; flatten it")
    try:
        value = load(raw)
        again = _encode(value)
    except (*_BROKEN, RecursionError) as cause:
        raise _malformed(raw, what, str(cause)) from cause
    if _has_nul(raw):
        raise _malformed(raw, what, "a NUL character (\\u0000)")
    if _count_keys(raw) != _count_keys(again):
        raise _malformed(raw, what, "a key occurs twice in one object")
    return value


class Codec(Generic[T]):
    """Writes and reads the state of a machine: a dataclass, msgspec Struct, pydantic model, or plain JSON.

    A state that cannot be read back is refused when it is written, so a wrong type never reaches the store;
    the cost is that `__post_init__` and validators run once more per commit. Type hints are resolved on first
    use or by `prepare()`, because they may name a class that is still being defined around them.
    """

    __slots__ = ("_class", "_encode", "_has_plain_parts", "_read", "name", "type")

    def __init__(self, type: type[T] | None = None) -> None:
        self.type = type
        self.name = "JSON" if type is None else _type_name(type)
        self._class = _runtime_class(type)
        self._has_plain_parts = True  # until its type hints are known
        self._read: Callable[[str | bytes], Any] | None = _load_any if type is None else None
        self._encode: Callable[[Any], bytes] = _encode_model if is_pydantic(type) else _encode_state

    def prepare(self) -> Codec[T]:
        """Resolve the type hints now; raises InvalidDefinition if that is not possible."""
        self._reader()
        return self

    def accepts(self, value: object) -> bool:
        """Return True if the value is an instance of this type; only `dump` checks its fields."""
        return isinstance(value, self._class)

    def load(self, text: str) -> T:
        """The state of text from the store; raises InvalidState if it no longer matches the code."""
        read = self._read or self._reader()
        try:
            # The state of most machines is plain JSON without bytes. One more call here makes a step 1 % slower.
            state: T = load(text) if read is _load_any and MARK not in text else read(text)
            return state
        except Exception as cause:  # __post_init__ and validators are user code: they may raise anything
            if (found := self._with_bytes(text)) is not None:
                return cast(T, found)
            raise InvalidState(
                f"The stored state does not match {self.name}: {_reason(cause)}; give new fields a default, "
                "or raise the version of the machine"
            ) from cause

    def dump(self, value: T, limit: int | None = None) -> str:
        """The text of a state, after a check that it can be loaded again; raises InvalidState if not."""
        if not isinstance(value, self._class):
            raise InvalidState(
                f"The state must be {self.name}, not {_type_name(type(value))}; "
                f"change ctx.state in place, or return state={self.name}(...)"
            )
        read = self._read or self._reader()
        is_plain = self.type is None
        read = load if is_plain else read
        return _write(value, self._encode, read, limit, "state", InvalidState, self._has_plain_parts, is_plain)

    def build(self, value: object = None, *, limit: int | None = None, what: str = "input") -> T:
        """A state from an object of its type or a JSON value; None means {}. Raises InvalidInput for any other, and
        for a key that the type does not have."""
        self._reader()  # report a type that cannot be used before any problem of the value
        if value is None:
            value = {}
        encode = self._encode if self.type is not None and self.accepts(value) else _encode
        is_plain = self.type is None
        text = _write(value, encode, load, limit, what, InvalidInput, compare=is_plain, forms=is_plain)
        state = self.read(text, what)
        if self.type is not None:
            check_input(value, state, what)
        return state

    def restore(self, value: object, what: str) -> T:
        """A value of this type from a JSON value that was checked before; it may have keys that the type has lost."""
        return self.read(_encode(value), what)

    def read(self, text: str | bytes, what: str) -> T:
        """A value of this type from JSON text that was written elsewhere; raises InvalidInput if it does not match."""
        read = self._read or self._reader()
        try:
            return cast(T, read(text))
        except Exception as cause:
            if (found := self._with_bytes(text)) is not None:
                return cast(T, found)
            raise InvalidInput(
                f"The {what} does not match {self.name}: {_reason(cause)}; correct that field"
            ) from cause

    def load_for_code(self, text: str) -> T:
        """The value of text from the store, as `load` gives it, with bytes also where the type says nothing."""
        found = self._with_bytes(text)
        return self.load(text) if found is None else cast(T, found)

    def _with_bytes(self, text: str | bytes) -> Any:
        """The value if the text has bytes in their JSON form; None if it has none, or does not match."""
        if self.type is None or (MARK not in text if isinstance(text, str) else MARK.encode() not in text):
            return None
        try:
            restored = restore(load(text))
            if is_pydantic(self.type):
                return cast(Any, self.type).model_validate(restored)
            return _complete(msgspec.convert(restored, self.type, str_keys=True, dec_hook=_decode_other))
        except Exception:  # of the user's validators too: the error of the first reading is raised
            return None

    def _reader(self) -> Callable[[str | bytes], Any]:
        if self._read is None:
            try:
                self._read = _typed_reader(self.type)
                self._has_plain_parts = has_plain_parts(self.type)
            except Exception as cause:
                raise _unusable(self.name, cause) from cause
        return self._read


# Writing.

_SAFE = 1 << 53
_FEW = 16  # up to so many items, checking each one costs less than reading the whole text back
_PLAIN = frozenset((str, float, bool, type(None)))


def _is_flat(value: dict[Any, Any]) -> bool:
    """Return True if a dict has only text keys, and values that every JSON parser reads alike: nothing can be lost."""
    for key, item in value.items():
        if type(key) is not str:
            return False
        if type(item) not in _PLAIN and not (type(item) is int and -_SAFE < item < _SAFE):
            return False
    return True


def _write(
    value: Any,
    encode: Callable[[Any], bytes],
    read: Callable[[bytes], Any],
    limit: int | None,
    what: str,
    error: type[InvalidInput],
    compare: bool = True,
    forms: bool = False,
) -> str:
    """Write a value. `forms`: bytes among plain values are written in their JSON form. `compare`: what would come back
    as something else is refused."""
    try:
        raw = encode(value)
    except Exception as cause:  # models are serialised by user code: it may raise anything
        raise error(_why_not_written(value, what, cause)) from cause
    size = len(raw)
    if limit is not None and size > limit:
        raise _too_large(what, size, limit)
    if size > 2 * DEPTH and _too_deep(raw):
        raise error(f"The {what} nests deeper than {DEPTH} levels; flatten it")
    text = raw.decode()
    if "\\u0000" in text and _has_nul(raw):
        where = _where(value, lambda leaf: isinstance(leaf, str) and "\0" in leaf)
        raise error(f"The {what} contains a NUL character{where}; remove it, or send bytes as base64")
    if "null" in text:  # what msgspec and pydantic write for NaN and the infinities
        _refuse_non_finite(value, raw, what, error)
    if read is load and type(value) is dict and len(value) <= _FEW and _is_flat(value):
        return text
    try:
        back = read(raw)
        equal = (compare or forms) and is_equal(value, back)
        if equal and read is load:
            return text
        if forms and not equal and (plain := _with_forms(value, what, error)) is not value:
            return _write(plain, encode, read, limit, what, error, compare)
        if compare and not equal and (problem := look_alike(value, back)):
            raise error(f"The {what} {problem}")
        same = len(_encode(back)) == size  # differs when a key was lost, and for harmless reasons
    except HarkError:
        raise
    except Exception as cause:
        raise error(
            f"The {what} cannot be read back: {_reason(cause)}; change it to a value of the declared type"
        ) from cause
    if not same and _count_keys(raw) != _count_keys(_encode(load(raw))):
        key = _diagnose(text)[1]
        raise error(f"The {what} has {key}: two Python keys become the same text; use str keys only")
    return text


def _with_forms(value: Any, what: str, error: type[InvalidInput]) -> Any:
    try:
        return as_json(value)
    except BytesKey as cause:
        raise error(f"The {what} has bytes as a key; use text, such as their base64, as keys") from cause


def _encode_other(value: Any) -> Any:
    """Encode pydantic models, which msgspec does not know, at any depth."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise _Unserialisable(value)


def _encode_other_in_state(value: Any) -> Any:
    # By alias, because validation reads aliases; round_trip leaves computed fields out.
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise _Unserialisable(value)


def _encode_model(model: Any) -> bytes:
    text: str = model.model_dump_json(by_alias=True, round_trip=True)
    return text.encode()


class _Unserialisable(TypeError):
    """An object has no JSON; it is the argument of this error."""


_encode = msgspec.json.Encoder(enc_hook=_encode_other).encode
_encode_state = msgspec.json.Encoder(enc_hook=_encode_other_in_state).encode


def _refuse_non_finite(value: object, raw: bytes, what: str, error: type[InvalidInput]) -> None:
    try:  # Comparing in C is several times faster than the walk, and a None is the usual reason for a null.
        if msgspec.to_builtins(value, str_keys=True) == load(raw):
            return
    except Exception:
        pass  # it holds a pydantic model
    if where := _where(value, lambda leaf: isinstance(leaf, float) and not math.isfinite(leaf)):
        raise error(
            f"The {what} contains NaN or an infinity{where}, which JSON cannot represent; send None or a string instead"
        )


def _why_not_written(value: object, what: str, cause: Exception) -> str:
    match cause:
        case RecursionError():
            return f"The {what} nests too deep or contains itself; flatten it"
        case UnicodeEncodeError():
            where = _where(value, _has_surrogate)
            return (
                f"The {what} contains half of a surrogate pair{where}; "
                "decode it with errors='replace', or send bytes as base64"
            )
        case _Unserialisable():
            (opaque,) = cause.args
            where = _where(value, lambda leaf: leaf is opaque)
            return (
                f"The {what} contains {_type_name(type(opaque))}{where}, which has no JSON; use dicts with "
                "text keys, lists, text, numbers, a dataclass, a msgspec Struct or a pydantic model"
            )
        case _:
            return f"The {what} cannot be written as JSON: {_reason(cause)}; change it to a JSON value"


# Reading from outside.


def _bytes(data: bytes | str, what: str) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as cause:
            line, column = _position(data, cause.start)
            raise MalformedJson(
                f"The {what} has half of a surrogate pair at line {line} column {column}; "
                "send text that UTF-8 can carry",
                line=line,
                column=column,
            ) from cause
    raise InvalidInput(f"The {what} must be JSON as bytes or str, not {_type_name(type(data))}; encode it first")


def _malformed(raw: bytes, what: str, problem: str) -> MalformedJson:
    """The error for refused text, with the position found by a second, slower parser."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as cause:
        place, problem = cause.start, f"not UTF-8 ({cause.reason})"
        text = raw[:place].decode()
    else:
        place, found = _diagnose(text)
        problem = found or problem
        if not found:
            return MalformedJson(f"The {what} is not valid JSON: {problem}; correct it and send it again")
    line, column = _position(text, place)
    return MalformedJson(
        f"The {what} is not valid JSON at line {line} column {column}: {problem}; correct it and send it again",
        line=line,
        column=column,
    )


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:]|[^\s{}\[\]:,"]+', re.DOTALL)


def _diagnose(text: str) -> tuple[int, str]:
    """The first problem in refused text: its position and description ("" if none is found)."""
    import json  # its messages have positions, those of msgspec do not; needed only for broken text

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos, error.msg[:1].lower() + error.msg[1:]
    except RecursionError:
        return 0, ""
    except ValueError:
        pass  # an integer with too many digits, found before any other problem
    seen: list[set[str]] = []  # the keys of each enclosing container; those of a list stay empty
    last, start = "", 0
    for token in _TOKEN.finditer(text):
        match mark := token.group():
            case "{" | "[":
                seen.append(set())
            case "}" | "]":
                seen.pop()
            case ":":
                if last in seen[-1]:
                    return start, f"the key {msgspec.json.encode(last).decode()} twice in one object"
                seen[-1].add(last)
            case _:
                start = token.start()
                if mark[0] != '"':
                    if problem := _number_problem(mark):
                        return start, problem
                    continue
                last = json.loads(mark)
                if _has_surrogate(last):
                    return start, "half of a surrogate pair in a string"
                if "\0" in last:
                    return start, "a NUL character (\\u0000) in a string"
    return 0, ""


def _number_problem(literal: str) -> str:
    if literal in ("NaN", "Infinity", "-Infinity"):
        return f"{literal} is not a JSON number"
    if literal in ("true", "false", "null"):
        return ""
    shown = literal if len(literal) <= 40 else literal[:37] + "..."
    try:
        load(literal)
    except _BROKEN:
        return f"the number {shown} is out of range"
    return ""


def _position(text: str, place: int) -> tuple[int, int]:
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


# Checking JSON text without parsing it.

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _has_nul(raw: bytes) -> bool:
    # Only after an even number of backslashes: the text \\u0000 is a backslash and five characters.
    return b"\\u0000" in raw and _NUL.search(raw) is not None


def _too_deep(raw: bytes) -> bool:
    if len(raw) <= 2 * DEPTH or raw.count(b"[") + raw.count(b"{") <= DEPTH:
        return False
    brackets = _outside_strings(raw).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > DEPTH


def _count_keys(raw: bytes) -> int:
    return _outside_strings(raw).count(b":")


def _outside_strings(raw: bytes) -> bytes:
    """The text without its strings. Splitting is tens of times faster than any regex or scanner."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2])


# Searching Python values, for an error message.


def _where(value: object, bad: Callable[[Any], bool]) -> str:
    """ " at $.path" of the first bad leaf, or "" if there is none or it cannot be reached."""
    try:
        return next((f" at {path}" for path, leaf in _leaves(value, "$") if bad(leaf)), "")
    except Exception:  # deep nesting, or attributes that raise: a message without the path
        return ""


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keys and leaves in the order of the encoder, so that the first bad one is the one it reported."""
    match value:
        case dict():
            for key, inner in value.items():
                here = path + f".{key}".encode(errors="backslashreplace").decode().replace("\0", "\\0")
                yield here, key
                yield from _leaves(inner, here)
        case list() | tuple() | set() | frozenset():
            for index, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{index}]")
        case _ if names := field_names(value):
            for name in names:
                yield from _leaves(getattr(value, name, None), f"{path}.{name}")
        case _:
            yield path, value


def _has_surrogate(leaf: object) -> bool:
    return isinstance(leaf, str) and any("\ud800" <= character <= "\udfff" for character in leaf)


def _too_large(what: str, size: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The {what} is {size} bytes of JSON and {limit} are allowed; "
        "store it elsewhere and send a reference, or raise max_payload",
        size=size,
        limit=limit,
    )


# Types.


def _typed_reader(type: Any) -> Callable[[str | bytes], Any]:
    if is_pydantic(type):
        if not type.__pydantic_complete__:
            type.model_rebuild()
        return cast("Callable[[str | bytes], Any]", type.model_validate_json)
    decode = msgspec.json.Decoder(type, dec_hook=_decode_other).decode
    return lambda text: _complete(decode(text))


_ATOMS = frozenset((str, int, float, bool, type(None)))


@cache
def _plain_defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind) if field.default is not MISSING)


def _complete(value: Any) -> Any:
    """Set the defaults of dataclasses on each object: msgspec leaves them on the class, but does not write them."""
    kind = value.__class__
    inside: Iterable[Any] = value if kind in (list, tuple) else value.values() if kind is dict else ()
    if hasattr(kind, "__dataclass_fields__") and (own := getattr(value, "__dict__", None)) is not None:
        for name, default in _plain_defaults(kind):
            own.setdefault(name, default)
        inside = own.values()
    elif names := getattr(kind, "__struct_fields__", ()):
        inside = [getattr(value, name) for name in names]
    for inner in inside:
        if inner.__class__ not in _ATOMS:
            _complete(inner)
    return value


def _decode_other(type: Any, value: Any) -> Any:
    if is_pydantic(type):
        try:
            return type.model_validate(value)
        except ValueError as cause:
            raise ValueError(_reason(cause)) from cause
    raise ValueError(f"{_type_name(type)} cannot be read from JSON; use a dataclass, Struct or pydantic model")


def _unusable(name: str, cause: Exception) -> HarkError:
    problem = _reason(cause)
    if isinstance(cause, NameError):
        advice = "define that type at module level, or write its qualified name ('Checkout.Item')"
        message = f"The type hints of {name} cannot be resolved: {problem}; {advice}"
    else:
        message = f"{name} cannot be a state: {problem}; use a dataclass, msgspec Struct or pydantic model"
    return InvalidDefinition(message, problems=[problem])


def is_typed(type: Any) -> bool:
    """Return True for a dataclass, Struct or pydantic model: JSON can become an object of it."""
    return is_dataclass(type) or hasattr(type, "__struct_fields__") or is_pydantic(type)


def _runtime_class(type_: Any) -> Any:
    """The class for isinstance: dict for dict[str, int] and a TypedDict, object for plain JSON."""
    if typing.is_typeddict(type_):
        return dict
    bare = typing.get_origin(type_) or type_
    return bare if isinstance(bare, type) else object


def _type_name(type_: Any) -> str:
    if not isinstance(type_, type) or typing.get_origin(type_) is not None:
        return str(type_)
    name = type_.__qualname__.rpartition("<locals>.")[2]
    bare = type_.__module__ == "builtins" or hasattr(type_, "__struct_fields__")
    return name if bare or is_dataclass(type_) or is_pydantic(type_) else f"{type_.__module__}.{name}"


def _reason(cause: Exception) -> str:
    """The message of an error; for pydantic errors those of its fields, in the format of msgspec."""
    errors = getattr(cause, "errors", None)
    if isinstance(cause, ValueError) and callable(errors):
        parts = []
        for problem in errors(include_url=False, include_context=False, include_input=False)[:3]:
            path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in problem["loc"])
            parts.append(f"{problem['msg']} - at `${path}`")
        return ", ".join(parts)
    first = str(cause).partition("\n")[0]  # pydantic adds a link below
    known = isinstance(cause, (*_BROKEN, TypeError, NameError))
    return first if known else f"{type(cause).__name__}: {first}"
