"""Draw a BPMN file as SVG, with where an instance is and was."""
