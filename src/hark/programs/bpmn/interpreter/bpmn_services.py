"""BpmnServices: the parts of the worker that the interpreter of BPMN processes uses. The worker implements it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.jobs.job_services import JobServices


class BpmnServices(JobServices, Protocol):
    """The services of the worker for the lane `bpmn`, in addition to JobServices."""

    def bpmn_graph(self, definition: str, version: int) -> Awaitable[BpmnGraph]:
        """A process, with its indexes: from the store on first use, then from memory."""
