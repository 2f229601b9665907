"""The state of a process as people see it: its variables, the elements where its tokens rest, and its incidents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hark.programs.bpmn.bpmn_spec import START
from hark.programs.bpmn.interpreter.instance_state import view
from hark.store.reads import InstanceRow


def bpmn_states(rows: Sequence[InstanceRow]) -> dict[str, Any]:
    """The `state` of these processes, by id."""
    # A called process that could not start has no step.
    return {row.id: view(row.state, row.step or START) for row in rows}
