"""Durable functions: `@workflow`, the context `ctx`, and the interpreter that replays the journal."""
