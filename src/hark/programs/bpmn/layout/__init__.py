"""Lay out what a BPMN file gives no coordinates."""
