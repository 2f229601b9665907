"""The command line on both stores."""

from tests.doors.support_cli import services

__all__ = ["services"]
