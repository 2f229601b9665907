"""Write docs/reference.md from the docstrings and signatures: `make reference`.

`undocumented()` lists what a docstring does not explain: tests/docs/test_reference.py fails for each, and for a page
that is out of date.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hark
from hark import testing
from hark.doors import errors as door_errors
from hark.doors.cli.main import exit_code
from hark.doors.http.responses import status_of
from hark.model.events import EVENTS

PAGE = Path(__file__).with_name("reference.md")

SECTIONS: dict[str, list[str]] = {
    "The app": ["Hark", "Handle", "Reply", "Start", "Rate", "Nats", "Worker"],
    "Machines": [
        "Machine", "step", "Context", "Outcome", "Next", "Retry", "Await", "Broadcast", "Spawn", "Child", "Done",
        "Stop",
    ],
    "Durable functions": ["workflow", "Workflow", "FunctionContext", "RetryPolicy", "AwakeableHandle"],
    "Jobs": ["load_job", "Job", "Dag", "TaskContext", "Problem"],
    "What the app returns": [
        "Page", "Instance", "Wait", "Awakeable", "Delivery", "Signal", "ChildView", "Event", "Entry", "Why",
        "Waiting", "Blocker", "NearMiss", "Schedule", "Token", "WorkerInfo", "DefinitionView", "Report", "LiveProblem",
        "Preview", "parse_awakeable_id",
    ],
    "Tests": ["Harness", "PathCoverage", "assert_continues"],
}  # fmt: skip
ALIASES = {
    "Outcome": "What a step returns: `Next`, `Retry`, `Await`, `Spawn`, `Done` or `Stop`.",
}
TYPES = """
In the signatures, a `Target` is an id, a correlation key, a `Handle` or an `Instance`; a `Definition` is a `@workflow`,
a `Machine` class or the name of one; a `Duration` is a number of seconds or a `timedelta`; a `Step` is a method of a
machine or its name. A time is a `datetime` with a time zone. A payload, input, state or result is a JSON value; a
dataclass, msgspec Struct or pydantic model is accepted wherever a JSON value is.
"""
HEADERS = ("Args", "Attributes", "Class arguments", "Returns", "Raises", "Example")


# -- docstrings ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Doc:
    """A docstring in its parts: the text, and its sections by header."""

    text: str
    sections: dict[str, str]

    def items(self, header: str) -> dict[str, str]:
        """The entries `name: text` of a section."""
        found: dict[str, str] = {}
        for line in self.sections.get(header, "").splitlines():
            entry = re.match(r"(\*{0,2}\w+): (.*)", line)
            if entry:
                found[entry[1].lstrip("*")] = entry[2]
            elif found:
                found[list(found)[-1]] += " " + line.strip()
        return found


def doc_of(thing: Any) -> Doc:
    """Parse the docstring of a thing itself; one that is inherited explains something else."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    text: list[str] = []
    sections: dict[str, list[str]] = {}
    current = text
    for line in inspect.cleandoc(own or "").splitlines():
        header = re.fullmatch(rf"({'|'.join(HEADERS)}):", line)
        if header:
            current = sections.setdefault(header[1], [])
        elif current is not text and line and not line.startswith(" "):
            current = text  # a paragraph below a section
            text += ["", line]
        else:
            current.append(line)
    return Doc(
        "\n".join(text).strip(),
        {header: textwrap.dedent("\n".join(lines)).strip("\n") for header, lines in sections.items()},
    )


def public(name: str) -> Any:
    return getattr(hark, name) if name in hark.__all__ else getattr(testing, name)


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class and of what it inherits from inside Hark, in order of definition."""
    if issubclass(owner, hark.Hark) and owner is not hark.Hark:
        classes: list[type] = [owner]  # the rest is Hark's
    else:
        classes = [one for one in owner.__mro__ if one.__module__.startswith("hark")]
    seen = set()
    for one in classes:
        for name, member in vars(one).items():
            if not name.startswith("_") and name not in seen and (callable(member) or isinstance(member, property)):
                seen.add(name)
                yield name, member


def parameters(function: Any) -> list[inspect.Parameter]:
    return [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")]


def is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, hark.HarkError)


def undocumented() -> Iterator[str]:
    """Each public name, method, parameter or attribute that no docstring explains."""
    listed = {name for names in SECTIONS.values() for name in names}
    for name in [*hark.__all__, "Harness", "PathCoverage", "assert_continues"]:
        thing = public(name)
        if name not in listed and not is_error(thing):
            yield f"{name} is in no section of {Path(__file__).name}"
        if name in ALIASES:
            continue
        if not doc_of(thing).text:
            yield f"{name} has no docstring"
        if not inspect.isclass(thing):
            yield from _unexplained(name, thing, set())
            continue
        explained = doc_of(thing).items("Attributes").keys()
        if dataclasses.is_dataclass(thing):
            yield from (f"{name}.{one.name}" for one in dataclasses.fields(thing) if one.name not in explained)
        elif not is_error(thing) and _is_made_by_users(thing):
            own = doc_of(thing).items("Args").keys()
            yield from _unexplained(f"{name}.__init__", thing.__init__, {*explained, *own})
        elif is_error(thing) and "__init__" in vars(thing):
            data = {one.name for one in parameters(thing.__init__)} - {"message", "text"}
            yield from (f"{name}.{one}" for one in sorted(data - explained))
        for attribute, member in members(thing):
            function = member.fget if isinstance(member, property) else member
            if not doc_of(function).text:
                yield f"{name}.{attribute} has no docstring"
            if not isinstance(member, property):
                yield from _unexplained(f"{name}.{attribute}", function, set())


def _unexplained(where: str, function: Any, elsewhere: set[str]) -> Iterator[str]:
    explained = doc_of(function).items("Args").keys() | elsewhere
    yield from (f"{where}: parameter {one.name}" for one in parameters(function) if one.name not in explained)


def _is_made_by_users(owner: type) -> bool:
    """Not a handle, reply, worker or context, which the engine makes; nor a class whose arguments are elsewhere."""
    return any("__init__" in vars(one) for one in owner.__mro__[:-1]) and owner not in (
        hark.Handle, hark.Reply, hark.Worker, hark.Context, hark.FunctionContext, hark.AwakeableHandle, hark.Workflow,
        hark.Machine, hark.TaskContext,
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------


def page() -> str:
    """The whole page."""
    parts = [
        "# Reference",
        "The public API, from its docstrings: `help(Hark.start)` shows the same. `make reference` writes this page.",
        TYPES.strip(),
        _contents(),
    ]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += (
                _alias(name) if name in ALIASES else _class(name) if inspect.isclass(public(name)) else _function(name)
            )
    parts += [*_events(), *_errors()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _contents() -> str:
    lines = [
        f"- {title}: " + ", ".join(f"[{name}](#{name.lower()})" for name in names) for title, names in SECTIONS.items()
    ]
    return "\n".join([*lines, "- [Events](#events)", "- [Errors](#errors)"])


def _alias(name: str) -> list[str]:
    return [f"### {name}", ALIASES[name]]


def _function(name: str) -> list[str]:
    return [f"### {name}", _signature(name, public(name)), *_body(public(name))]


def _class(name: str) -> list[str]:
    owner = public(name)
    doc = doc_of(owner)
    parts = [f"### {name}"]
    if name == "Harness":
        parts.append("`from hark.testing import Harness`; the other names are imported from `hark`.")
    if not dataclasses.is_dataclass(owner) and _is_made_by_users(owner):
        parts.append(_signature(name, owner.__init__))
        init = doc_of(owner.__init__)
        doc.sections = {**{key: value for key, value in init.sections.items() if key != "Returns"}, **doc.sections}
    parts += _sections(doc, owner.__init__)
    for attribute, member in members(owner):
        if isinstance(member, property):
            if attribute not in doc.items("Attributes"):
                parts += [f"#### {name}.{attribute}", doc_of(member.fget).text]
        else:
            parts += [f"#### {name}.{attribute}", _signature(attribute, member), *_body(member)]
    return parts


def _body(function: Any) -> list[str]:
    return _sections(doc_of(function), function)


def _sections(doc: Doc, function: Any) -> list[str]:
    parts = [doc.text]
    for header, title in {
        "Args": "Parameters",
        "Class arguments": "Class arguments",
        "Attributes": "Attributes",
    }.items():
        if doc.items(header):
            parts.append(f"{title}:\n\n{_entries(doc.items(header))}")
    if "Returns" in doc.sections:
        parts.append("Returns: " + " ".join(doc.sections["Returns"].split()))
    if doc.items("Raises"):
        parts.append("Raises:\n\n" + _entries(doc.items("Raises")))
    if "Example" in doc.sections:
        parts.append(_code(doc.sections["Example"]))
    return parts


def _entries(items: dict[str, str]) -> str:
    return "\n".join(f"- `{name}`: {text}" for name, text in items.items())


def _code(text: str) -> str:
    return f"```\n{text}\n```"  # without a language: it is a fragment, and the tests run every block with one


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    given = [one for one in signature.parameters.values() if one.name != "self"]
    shown = signature.replace(parameters=given, return_annotation=inspect.Signature.empty)
    returns = (
        "" if signature.return_annotation in ("None", inspect.Signature.empty) else f" -> {signature.return_annotation}"
    )
    line = f"{name}{_plain(shown)}{returns}"
    if len(line) > 100:
        arguments = ",\n    ".join(_split(_plain(shown)[1:-1]))
        line = f"{name}(\n    {arguments},\n){returns}"
    return _code(("async " if inspect.iscoroutinefunction(function) else "") + line)


def _plain(signature: inspect.Signature) -> str:
    """The signature with its annotations, which are text, not in quotes."""
    return re.sub(r": '([^']*)'", r": \1", str(signature))


def _split(arguments: str) -> list[str]:
    """The arguments one by one: at commas that are not inside brackets."""
    found, depth = [""], 0
    for character in arguments:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [one.strip() for one in found]


def _events() -> list[str]:
    rows = []
    for name, info in EVENTS.items():
        data = "<br>".join(f"`{key}`: {text}" for key, text in info.data.items())
        rows.append(f"| `{name}` | {info.meaning} | {data} |")
    return [
        "## Events",
        "The types of `Event.type`, and the keys of `Event.data`; a key with `?` may be absent. A stream over HTTP "
        "also sends `end`, with the status of the instance, when there are no more events.",
        "\n".join(["| type | meaning | data |", "|---|---|---|", *rows]),
    ]


def _errors() -> list[str]:
    ours = sorted((public(name) for name in hark.__all__ if is_error(public(name))), key=_tree)
    doors = [one for one in vars(door_errors).values() if is_error(one) and one.__module__ == door_errors.__name__]
    return [
        "## Errors",
        "All errors are in one tree under `HarkError` and can be imported from `hark`. The last columns are the status "
        "of a response over HTTP and the exit code of a command that end with the error.",
        _error_table(ours),
        "Only the doors raise these; they cannot be imported from `hark`:",
        _error_table(doors),
    ]


def _error_table(errors: list[type[hark.HarkError]]) -> str:
    rows = ["| error | is also | when, and what to do | data | HTTP | exit |", "|---|---|---|---|---|---|"]
    for error in errors:
        data = ", ".join(f"`.{one}`" for one in doc_of(error).items("Attributes"))
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not Exception)
        bare = error.__new__(error)
        text = " ".join(doc_of(error).text.split()).replace("|", "\\|")
        rows.append(f"| `{error.__name__}` | {bases} | {text} | {data} | {status_of(bare)} | {exit_code(bare)} |")
    return "\n".join(rows)


def _tree(error: type[hark.HarkError]) -> list[str]:
    """Sorts an error below its parent."""
    return [one.__name__ for one in reversed(error.__mro__) if issubclass(one, hark.HarkError)]


if __name__ == "__main__":
    missing = list(undocumented())
    if missing:
        sys.exit("Not documented:\n  " + "\n  ".join(missing))
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE} is up to date")
