"""The command line on both stores."""

from tests.doors.support_cli import desk

__all__ = ["desk"]
