"""Decide what only jobs and BPMN need: a run is one address, with tasks that take signals and ask under it."""
