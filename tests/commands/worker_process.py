"""A process that runs one command, to be killed: `python worker_process.py GRACE USE_PRCTL COMMAND SCRATCH`.

It prints each line that the command writes to stderr. At the line `fork` it forks a process, which keeps all its
descriptors open, and prints the id of that process.
"""

import asyncio
import os
import signal
import sys

from hark.engine.commands import runner


async def main() -> None:
    async def show(line: str) -> None:
        if line == "fork":
            child = os.fork()
            if child == 0:
                signal.pause()
            line = str(child)
        print(line, flush=True)

    grace, use_prctl, command, scratch = sys.argv[1:]
    runner._USE_PRCTL = use_prctl == "True"
    end = await runner.run_command(
        runner.CommandLine(["/bin/sh", "-c", command], dict(os.environ), scratch=scratch or None),
        max_stdout=1000,
        on_stderr=show,
        grace=float(grace),
    )
    print(end.stdout.decode(), end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
