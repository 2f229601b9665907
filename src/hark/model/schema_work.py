"""Count the work of validating an answer before it is done.

One check is one part of a schema applied to one part of an answer. Some schemas multiply: the alternatives of an
`anyOf` that refers to itself are all tried again at every level of the answer, so a short answer can take very many
checks. The count costs little more than a walk through the answer, and ends as soon as it is over the limit.

The count is an upper limit: every alternative is counted, although the validator stops at the first that matches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

from hark.model.errors import InvalidInput

MOST_AT_ONE_VALUE = 10_000  # parts of a schema that apply to a single value

_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_OF_ANY_NAME = ("unevaluatedProperties",)
_OF_ITEMS = ("contains", "additionalItems", "unevaluatedItems")
_MAX_STATES = 1000  # kept for the next answer
_CHARACTERS_PER_ERROR = 100  # that are matched in the time of a check whose error is listed
_COPIED_PER_CHECK = 100  # values in an error, which has a copy of the value that it is about, in that time
_CHARACTERS_PER_VALUE = 50  # that are copied in the time of a value
_SMALL_EXPONENT = 64  # of a float; dividing one with a larger exponent takes longer for each bit
_NAMES = -1  # instead of the index of an item: the names of the properties
_CAP = 1 << 60  # multiplied no further

PatternCost = Callable[[str], int]
"""The checks that a pattern takes for each character of a text."""


class SchemaWork:
    """The work of one schema. May be used by several threads at once.

    Args:
        schema: The JSON Schema, which is valid as such.
        pattern_cost: What a pattern takes for each character.

    Raises:
        InvalidInput: A reference leaves the schema, or too many parts of it apply to a single value.
    """

    def __init__(self, schema: Any, pattern_cost: PatternCost) -> None:
        self._root = _PartBuilder(schema, pattern_cost).root
        _refuse_too_many(_walk([self._root], lambda part: [*part.here, *part.below()])[0])
        self._states: dict[Any, _State] = {}
        self._first: dict[bool, _State] = {}

    def checks(self, answer: Any, limit: int, *, remembered: bool) -> int:
        """The checks to validate an answer; somewhere above `limit` when it is more than that.

        Args:
            answer: The answer, a JSON value.
            limit: Where to stop counting.
            remembered: Whether a part that refers to itself is applied once to each value, and the result remembered,
                as when only yes or no is wanted; or once for each way that leads to it, as when errors are listed.
        """
        first = self._first.get(remembered)
        if first is None:
            first = self._first[remembered] = self._state({self._root: 1}, remembered)
        total, characters_per_check = 0, 1 if remembered else _CHARACTERS_PER_ERROR
        todo = [(answer, first)]
        while todo:
            value, state = todo.pop()
            total += state.weight
            if not remembered and isinstance(value, str | list | dict):
                total += state.errors * _copied(value) // _COPIED_PER_CHECK
            if isinstance(value, str):
                total += state.per_character * len(value) // characters_per_check
            elif isinstance(value, list):
                total += state.per_item * len(value)
                if total <= limit:
                    todo += [(item, self._child(state, n, remembered)) for n, item in enumerate(value)]
            elif isinstance(value, dict):
                if state.per_key_character:
                    total += state.per_key_character * sum(map(len, value)) // characters_per_check
                if total <= limit:
                    todo += [(item, self._child(state, name, remembered)) for name, item in value.items()]
                    if state.has_names:
                        names = self._child(state, _NAMES, remembered)
                        todo += [(name, names) for name in value]
                        if not remembered:  # each error has a copy of the whole object
                            total += names.errors * len(value) * _copied(value) // _COPIED_PER_CHECK
            elif state.multiples and isinstance(value, float):
                total += state.multiples * max(0, abs(math.frexp(value)[1]) - _SMALL_EXPONENT)
            if total > limit:
                break
        return total

    def _child(self, state: _State, at: str | int, remembered: bool) -> _State:
        """The state of the item or property of a value that is in this state, or of the names of its properties."""
        if isinstance(at, str):
            key: str | int | None = at if at in state.names else None
        else:
            key = min(at, state.positions)
        found = state.children.get(key)
        if found is None:
            parts: dict[_Part, int] = {}
            for part, count in state.parts.items():
                for inner in part.at(key):
                    parts[inner] = min(parts.get(inner, 0) + count, _CAP)
            found = state.children[key] = self._state(parts, remembered)
        return found

    def _state(self, parts: Mapping[_Part, int], remembered: bool) -> _State:
        """The parts and everything that they apply in place."""
        every: dict[_Part, int] = {}
        todo = list(parts.items())
        while todo:
            part, count = todo.pop()
            if remembered and part.recursive:
                if part in every:
                    continue
                count = 1
            every[part] = min(every.get(part, 0) + count, _CAP)
            todo += [(inner, count) for inner in part.here]
        key = (remembered, frozenset(every.items()))
        if len(self._states) > _MAX_STATES:
            self._states, self._first = {}, {}
        return self._states.setdefault(key, _State(every))


class _Part:
    """A schema within the schema, and where its own parts apply."""

    def __init__(self) -> None:
        self.weight = 1
        self.per_character = 0
        self.per_key_character = 0
        self.per_item = 0
        self.multiples = 0
        self.errors = 1  # of this part alone, at one value
        self.recursive = False
        self.here: list[_Part] = []  # apply to the same value
        self.names: dict[str, _Part] = {}
        self.other_names: list[_Part] = []
        self.any_name: list[_Part] = []
        self.every_name: list[_Part] = []  # applies to the names themselves
        self.first_items: list[_Part] = []
        self.other_items: list[_Part] = []
        self.any_item: list[_Part] = []

    def at(self, key: str | int | None) -> Iterator[_Part]:
        """The parts that apply to a property (None: one without a part of its own), to an item, or to every name."""
        if key == _NAMES:
            yield from self.every_name
        elif isinstance(key, int):
            yield from self.any_item
            yield from [self.first_items[key]] if key < len(self.first_items) else self.other_items
        else:
            yield from self.any_name
            yield from [self.names[key]] if key in self.names else self.other_names

    def below(self) -> Iterator[_Part]:
        yield from self.names.values()
        yield from (*self.other_names, *self.any_name, *self.every_name)
        yield from (*self.first_items, *self.other_items, *self.any_item)


class _State:
    """The parts that apply to a value, each with the number of times."""

    def __init__(self, parts: dict[_Part, int]) -> None:
        self.parts = parts
        self.weight = sum(part.weight * count for part, count in parts.items())
        self.per_character = sum(part.per_character * count for part, count in parts.items())
        self.per_key_character = sum(part.per_key_character * count for part, count in parts.items())
        self.per_item = sum(part.per_item * count for part, count in parts.items())
        self.errors = sum(part.errors * count for part, count in parts.items())
        self.multiples = sum(part.multiples * count for part, count in parts.items())
        self.has_names = any(part.every_name for part in parts)
        self.names = {name for part in parts for name in part.names}
        self.positions = max((len(part.first_items) for part in parts), default=0)
        self.children: dict[str | int | None, _State] = {}


class _PartBuilder:
    """Builds the graph of parts; references are edges like any other."""

    def __init__(self, schema: Any, pattern_cost: PatternCost) -> None:
        self._pattern_cost = pattern_cost
        self._documents: dict[str, Any] = {}
        self._anchors: dict[str, list[tuple[Any, str]]] = {}
        self._find_names(schema, "")
        self._parts: dict[int, _Part] = {}  # by the id() of their schema
        self._todo: list[tuple[_Part, Any, str]] = []
        self.root = self._part(schema, "")
        while self._todo:
            self._fill(*self._todo.pop())
        order, back = _walk([self.root], lambda part: [*part.here, *part.below()])
        for _, target in back:
            target.recursive = True
        _, circles = _walk(order, lambda part: part.here)
        for part, target in circles:  # {"$ref": "#"} applies itself in place, once
            part.here.remove(target)

    def _find_names(self, schema: Any, base: str) -> None:
        """Collect every `$id` and anchor, wherever it is."""
        todo = [(schema, base)]
        self._documents[base] = schema
        while todo:
            node, base = todo.pop()
            if isinstance(node, dict):
                if isinstance(id := node.get("$id"), str) and not id.startswith("#"):
                    base = urljoin(base, id).rstrip("#")
                    self._documents[base] = node
                for word in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := node.get(word), str):
                        self._anchors.setdefault(name, []).append((node, base))
                if node.get("$recursiveAnchor") is True:
                    self._anchors.setdefault("", []).append((node, base))
                todo += [(inner, base) for inner in node.values()]
            elif isinstance(node, list):
                todo += [(inner, base) for inner in node]

    def _part(self, schema: Any, base: str) -> _Part:
        part = self._parts.get(id(schema)) if isinstance(schema, dict) else None
        if part is None:
            part = _Part()
            if isinstance(schema, dict):
                self._parts[id(schema)] = part
                self._todo.append((part, schema, base))
        return part

    def _fill(self, part: _Part, schema: dict[str, Any], base: str) -> None:
        if isinstance(id := schema.get("$id"), str) and not id.startswith("#"):
            base = urljoin(base, id).rstrip("#")

        def several(values: Iterable[Any]) -> list[_Part]:
            return [self._part(value, base) for value in values if isinstance(value, dict)]

        part.here += several(schema.get(word) for word in _IN_PLACE)
        for word in _IN_PLACE_LISTS:
            part.here += several(_list(schema.get(word)))
        for word in _IN_PLACE_MAPS:
            part.here += several(_dict(schema.get(word)).values())
        if any(word.startswith("unevaluated") for word in schema):
            part.here *= 2  # applied again, to find out what they evaluate
        for word in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := schema.get(word), str):
                part.here += [self._part(found, at) for found, at in self._resolve(reference, base)]
        properties = _dict(schema.get("properties"))
        part.names = {name: self._part(inner, base) for name, inner in properties.items()}
        patterns = _dict(schema.get("patternProperties"))
        part.other_names = several([schema.get("additionalProperties")])
        part.any_name = several(patterns.values()) + several(schema.get(word) for word in _OF_ANY_NAME)
        part.first_items = [
            self._part(inner, base) for inner in _list(schema.get("prefixItems")) or _list(schema.get("items"))
        ]
        part.other_items = several([schema.get("items")])
        part.any_item = several(schema.get(word) for word in _OF_ITEMS)
        part.weight += (len(properties) + len(_list(schema.get("required")))) // 8 + _values_compared(schema)
        if isinstance(pattern := schema.get("pattern"), str):
            part.per_character += self._pattern_cost(pattern)
        part.per_character += "format" in schema
        part.per_key_character = sum(map(self._pattern_cost, patterns))
        part.every_name = several([schema.get("propertyNames")])
        part.multiples = int("multipleOf" in schema)
        part.errors += len(_list(schema.get("required")))
        for needed in (*_dict(schema.get("dependentRequired")).values(), *_dict(schema.get("dependencies")).values()):
            part.errors += len(_list(needed))
        part.per_item = 4 if schema.get("uniqueItems") is True else 0

    def _resolve(self, reference: str, base: str) -> list[tuple[Any, str]]:
        """Find the target of a reference: one schema, or all with that anchor, as the right one is known only later."""
        address, _, fragment = reference.partition("#")
        base = urljoin(base, address) if address else base
        if base in self._documents and (not fragment or fragment.startswith("/")):
            found = self._documents[base]
            for name in unquote(fragment).split("/")[1:]:
                name = name.replace("~1", "/").replace("~0", "~")
                if isinstance(found, dict):
                    found = found.get(name)
                else:
                    found = found[int(name)] if isinstance(found, list) and name.isdigit() else None
            return [(found, base)] if isinstance(found, dict) else []
        if fragment in self._anchors:
            return self._anchors[fragment]
        raise InvalidInput(f"The JSON Schema is malformed: {reference!r} is not in it; point every $ref into it")


def _walk(
    roots: Iterable[_Part], edges: Callable[[_Part], Iterable[_Part]]
) -> tuple[list[_Part], list[tuple[_Part, _Part]]]:
    """List the parts that can be reached, the deepest first; and the edges that lead back to a part on the way."""
    order: list[_Part] = []
    back: list[tuple[_Part, _Part]] = []
    done: dict[_Part, bool] = {}  # False while its edges are being followed
    for root in roots:
        if root in done:
            continue
        done[root] = False
        way = [(root, iter(list(edges(root))))]
        while way:
            part, left = way[-1]
            for inner in left:
                if inner not in done:
                    done[inner] = False
                    way.append((inner, iter(list(edges(inner)))))
                    break
                if not done[inner]:
                    back.append((part, inner))
            else:
                way.pop()
                done[part] = True
                order.append(part)
    return order, back


def _refuse_too_many(parts: Iterable[_Part]) -> None:
    at_one_value: dict[_Part, int] = {}
    for part in _walk(parts, lambda part: part.here)[0]:
        at_one_value[part] = part.weight + sum(at_one_value[inner] for inner in part.here)
        if at_one_value[part] > MOST_AT_ONE_VALUE:
            raise InvalidInput(
                f"The JSON Schema applies more than {MOST_AT_ONE_VALUE} alternatives to one value; "
                "refer to the same definition less often, or check the rest in code"
            )


def _values_compared(schema: dict[str, Any]) -> int:
    """Count the values of lists and objects to compare with; simple values are found in a set."""
    return sum(_size(value) for value in [*_list(schema.get("enum")), schema.get("const")] if _size(value) > 1)


def _size(value: Any) -> int:
    size, todo = 0, [value]
    while todo:
        value = todo.pop()
        size += 1
        todo += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return size


def _copied(value: Any) -> int:
    """The names and values to copy, for a value that an error is about; a long text counts as several."""
    size, todo = 0, [value]
    while todo:
        value = todo.pop()
        size += 1
        if isinstance(value, str):
            size += len(value) // _CHARACTERS_PER_VALUE
        elif isinstance(value, dict | list):
            todo += [*value, *value.values()] if isinstance(value, dict) else value
    return size


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
