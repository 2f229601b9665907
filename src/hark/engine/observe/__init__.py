"""Observe the engine: metrics, OpenTelemetry, and the log of failures."""
