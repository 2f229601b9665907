"""Interpreters of machines and durable functions, without I/O, clock, threads or SQL. Imports model."""
