"""Serve the programs of tasks: what they read of the store, and tasks that workers outside fetch."""
