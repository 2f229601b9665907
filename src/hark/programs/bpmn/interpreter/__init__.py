"""The interpreter of BPMN processes: tokens move through the graph of a process, one activation at a time."""
