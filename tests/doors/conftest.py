"""The command line on both stores."""

from tests.doors.support_cli import cli

__all__ = ["cli"]
