"""`help()` is the reference: what a docstring must say about a public class, function or error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import hark
from hark.model.errors import HarkError

AREAS = ("hark.model.", "hark.programs.")
PUBLIC = {name: getattr(hark, name) for name in hark.__all__}
OURS = {name: value for name, value in PUBLIC.items() if value.__module__.startswith(AREAS)}
CLASSES = {name: value for name, value in OURS.items() if isinstance(value, type)}
# Created by the engine: a user only receives them.
MADE_BY_THE_ENGINE = {"AwakeableHandle", "Context", "FunctionContext", "TaskContext"}


def callables() -> Iterator[Any]:
    for name, value in OURS.items():
        if not isinstance(value, type):
            yield pytest.param(value, value.__doc__, id=name)
            continue
        for method, function in vars(value).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                yield pytest.param(function, function.__doc__, id=f"{name}.{method}")
        constructs = "__init__" in vars(value) and not is_dataclass(value) and not issubclass(value, HarkError)
        if constructs and name not in MADE_BY_THE_ENGINE:
            documented = f"{value.__doc__}\n{value.__init__.__doc__}"
            yield pytest.param(value.__init__, documented, id=f"{name}.__init__")


@pytest.mark.parametrize("name", OURS)
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    text = inspect.getdoc(OURS[name])
    assert text
    assert not text.startswith(f"{name}(")  # what dataclasses generate


@pytest.mark.parametrize(("function", "text"), list(callables()))
def test_a_docstring_names_every_parameter(function: Callable[..., Any], text: str | None) -> None:
    assert text
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    missing = [name for name in parameters if f"{name}:" not in text]
    assert not missing


@pytest.mark.parametrize(("function", "text"), list(callables()))
def test_a_docstring_says_what_is_returned(function: Callable[..., Any], text: str) -> None:
    returns = inspect.signature(function).return_annotation
    assert returns in ("None", None, inspect.Signature.empty) or "Returns:" in text


@pytest.mark.parametrize("name", [name for name, value in CLASSES.items() if is_dataclass(value)])
def test_the_docstring_of_a_value_names_every_field(name: str) -> None:
    text = inspect.getdoc(CLASSES[name]) or ""
    assert "Attributes:" in text
    assert not [field.name for field in fields(CLASSES[name]) if f"\n    {field.name}: " not in text]


@pytest.mark.parametrize("name", [name for name, value in CLASSES.items() if issubclass(value, HarkError)])
def test_the_docstring_of_an_error_names_its_attributes(name: str) -> None:
    kind = CLASSES[name]
    text = inspect.getdoc(kind) or ""
    data = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert not [attribute for attribute in data if f"\n    {attribute}: " not in text]


@pytest.mark.parametrize("name", CLASSES)
def test_a_property_has_a_docstring(name: str) -> None:
    properties = {key: value for key, value in vars(CLASSES[name]).items() if isinstance(value, property)}
    assert all(value.__doc__ for key, value in properties.items() if not key.startswith("_"))


MAIN_VERBS = [
    hark.Await, hark.Next, hark.Retry, hark.Spawn, hark.Child, hark.Done, hark.Stop, hark.Machine, hark.step,
    hark.workflow, hark.FunctionContext, hark.FunctionContext.run, hark.FunctionContext.call,
    hark.FunctionContext.awakeable, hark.FunctionContext.wait_for_signal, hark.FunctionContext.gather,
    hark.FunctionContext.first, hark.FunctionContext.continue_as_new, hark.Rate,
]  # fmt: skip


@pytest.mark.parametrize("verb", MAIN_VERBS, ids=lambda verb: verb.__name__)
def test_the_main_verbs_have_an_example(verb: Any) -> None:
    assert "Example:" in (inspect.getdoc(verb) or "")
