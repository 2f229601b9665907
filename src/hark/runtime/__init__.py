"""Clerk, worker, bus, registry: where kernel and programs meet."""
