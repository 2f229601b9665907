"""The command line: main.py has the list of commands, and each of the other modules one command or group."""

import sys


def main() -> None:
    try:
        from hark.doors.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "hark":
            raise
        from hark.model.extras import missing_extra

        print("hark:", missing_extra(error, extra="cli", needed_by="The command line"), file=sys.stderr)
        sys.exit(2)
    run()
