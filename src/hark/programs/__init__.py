"""Interpreters: pure, without I/O, clock, thread or SQL. Imports model."""
