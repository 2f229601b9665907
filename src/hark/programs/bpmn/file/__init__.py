"""BPMN 2.0 files of any modeler: reading, checking and drawing processes."""

from __future__ import annotations

from hark.programs.bpmn.file.bpmn_reading import BpmnFile, read_bpmn

__all__ = ["BpmnFile", "read_bpmn"]
