"""Verbs that only jobs and BPMN need: a run is one address, under which its tasks take signals and ask questions."""
