"""The command line. Typer and rich are imported only when a command runs."""

from hark.doors.cli.main import main

__all__ = ["main"]
