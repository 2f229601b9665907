"""Test infrastructure: a real PostgreSQL, and stores for an app to use."""
