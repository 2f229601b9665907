"""Machines: a class with one method per step, and its interpreter."""
