"""The part of the state of a process that the kernel knows: its variables and incidents, and its control wait.

Everything else in the state belongs to the interpreter (programs/bpmn/interpreter/instance_state.py).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

START: Final = "start"
"""The first step of an instance that is started by name."""

_Object = dict[str, Raw]
_decode_object = msgspec.json.Decoder(_Object).decode
_encode = msgspec.json.Encoder().encode


class _Incidents(Struct):
    """The part of a state that lists tokens which cannot go on."""

    incidents: list[Any] = []


_decode_incidents = msgspec.json.Decoder(_Incidents).decode


def control_wait(instance: str) -> str:
    """The id of the wait of a process that receives the ends of its children and the requests of operators."""
    return f"{instance}~0"


def has_begun(step: str) -> bool:
    """Return True if a process at this step has had its first activation. Before that its state is its input."""
    return step != START and not step.startswith(f"{START}:")


def has_incidents(state: str) -> bool:
    return bool(_decode_incidents(state).incidents)


def merge_variables(state: str, payload: str, step: str) -> str:
    """The state of a process with these variables set.

    Args:
        state: The state, JSON text.
        payload: The variables, the JSON text of an object.
        step: The step of the process: before the first activation, its state is nothing but variables.
    """
    found, new = _decode_object(state), _decode_object(payload)
    if not has_begun(step):
        return _encode(found | new).decode()
    variables = _decode_object(found["variables"]) if "variables" in found else {}
    found["variables"] = Raw(_encode(variables | new))
    return _encode(found).decode()
