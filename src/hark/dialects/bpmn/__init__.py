"""BPMN 2.0 files of any modeler: reading, checking and drawing processes."""
