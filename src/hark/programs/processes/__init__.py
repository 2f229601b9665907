"""Processes: the interpreter of BPMN, and how it starts what handlers run."""
