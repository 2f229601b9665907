"""Lanes: the code that a worker must have before it may claim an instance.

A definition in code is a lane of its own; an interpreter, a task handler and a gate are lanes too. A lane of code ends
with `@` and the version; no other lane contains an `@`, so two lanes never have the same name. A handler may have any
name, because elements of processes name it too: characters with a meaning in lanes are written as in a URL.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

JOB: Final = "job"  # the interpreter of jobs: every worker has it
BPMN: Final = "bpmn"  # the interpreter of processes: every worker has it
BULK: Final = "hark.bulk"  # actions on many instances, and the name of their definition: every worker has it
SHELL: Final = "task:shell"  # a task that runs a shell command
ENGINE_QUEUE: Final = "hark.graphs"  # the queue of everything that an interpreter runs; every worker serves it
INTERPRETED: Final = frozenset({JOB, BPMN, BULK})  # the lanes of that queue; a job or process has the name of its kind

ON_EVERY_WORKER: Final = INTERPRETED | {SHELL}  # the lanes that all of Hark's workers have

_TASK: Final = "task:"
_AGENT: Final = "task:agent:"
_GATE: Final = "gate:"
_SPECIAL: Final = "%@:,"  # in the name of a handler; a comma separates the lanes of a worker
_DELEGATE: Final = re.compile(r"[$#]\{\s*(?:([\w.$-]+?)|([A-Za-z_][\w.]*)\s*\(.*\))\s*\}", re.DOTALL)


def code_lane(definition: str, version: int) -> str:
    return f"{definition}@{version}"


def lane_of(kind: str, definition: str, version: int) -> str:
    return kind if kind in INTERPRETED else code_lane(definition, version)


def handler_name(text: str) -> str:
    """The name of a handler: of the delegate `${bean}` in a process it is `bean`, of `${bean.method(x)}` it is
    `bean.method`; any other text is itself."""
    found = _DELEGATE.fullmatch(text)
    return text if found is None else found[1] or found[2]


def task_lane(handler: str) -> str:
    for letter in _SPECIAL:
        if letter in handler:
            handler = handler.replace(letter, f"%{ord(letter):02X}")
    return f"{_TASK}{handler}"


def agent_lane(type: str) -> str:
    return f"{_AGENT}{type}"


def gate_lane(name: str) -> str:
    return f"{_GATE}{name}"


def handler_of(lane: str) -> str | None:
    """The handler that a lane needs; None if it is the lane of something else."""
    if not lane.startswith(_TASK) or "@" in lane:
        return None
    handler = lane[len(_TASK) :]
    for letter in reversed(_SPECIAL) if "%" in handler else "":
        handler = handler.replace(f"%{ord(letter):02X}", letter)
    return handler


def gate_of(lane: str) -> str | None:
    """The gate that a lane needs; None if it is the lane of something else."""
    return lane[len(_GATE) :] if lane.startswith(_GATE) and "@" not in lane else None


def what_runs(lane: str) -> str:
    """The requirement of this lane, as the end of the sentence "No worker has"."""
    if lane == SHELL:
        return "the runner of shell commands"
    if lane.startswith(_AGENT):
        return f"the agent {lane[len(_AGENT) :]!r}"
    if (handler := handler_of(lane)) is not None:
        return f"the handler {handler!r}"
    if (gate := gate_of(lane)) is not None:
        return f"the gate {gate!r}"
    if lane == BULK:
        return "the runner of actions on many instances"
    if lane in INTERPRETED:
        return "the interpreter of jobs" if lane == JOB else "the interpreter of processes"
    definition, _, version = lane.rpartition("@")
    return f"the code of {definition} version {version}"


def how_to_run(lane: str) -> str:
    """The command that starts a worker for this lane; who runs it has to say which app or which command it is."""
    if lane in ON_EVERY_WORKER:
        return "hark worker"
    if lane.startswith(_AGENT):
        return f"hark worker --agent {shlex.quote(lane[len(_AGENT) :])}='COMMAND …'"
    return "hark worker --app module:app"


def lane_name_problem(name: str, what: str) -> str | None:
    """The error text if a handler, an agent or a gate (`what`) cannot have this name; None if it can."""
    if what != "handler" and ("@" in name or ":" in name or "," in name):
        return f"The {what} {name!r} contains '@', ':' or ','; use another name."
    if name == "shell" and what != "gate":
        return f"The {what} cannot be called 'shell': that name is taken by tasks that run a command."
    return None
