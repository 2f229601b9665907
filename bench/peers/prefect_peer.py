"""Measure Prefect. Runs in the interpreter of its own environment and prints one JSON line.

A flow of 100 no-op tasks in one process, with the temporary local server that Prefect starts by itself, on a SQLite
file. Logs do not go to the server, and results are not stored. `--style` selects how the flow runs its tasks: `calls`
(one after the other), `threads` (a thread pool) or `async`; the fastest is the default.
"""

import asyncio
import os
import sys
import tempfile
import time

HOME = tempfile.mkdtemp(prefix="prefect-home-")
os.environ |= {
    "PREFECT_HOME": HOME,
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_API_DATABASE_CONNECTION_URL": sys.argv[2].replace("sqlite://", "sqlite+aiosqlite://"),
    "DO_NOT_TRACK": "1",
}

from prefect import flow, task  # noqa: E402
from prefect.futures import wait  # noqa: E402
from prefect.task_runners import ThreadPoolTaskRunner  # noqa: E402
from result import command_line, parse, report  # noqa: E402

BEST = {"steps": {"n": 100, "style": "calls"}}


@task(persist_result=False)
def nothing(_: int) -> None:
    return None


@task(persist_result=False)
async def nothing_async(_: int) -> None:
    return None


@flow(persist_result=False)
def calls(n: int) -> None:
    for number in range(n):
        nothing(number)


@flow(persist_result=False, task_runner=ThreadPoolTaskRunner(max_workers=16))  # type: ignore[arg-type]
def threads(n: int) -> None:
    wait(nothing.map(range(n)))


@flow(persist_result=False)
async def gathered(n: int) -> None:
    await asyncio.gather(*(nothing_async(number) for number in range(n)))


def main() -> None:
    parser = command_line(__doc__ or "")
    parser.add_argument("--style", choices=("calls", "threads", "async"))
    options = parse(parser, BEST)

    def run(n: int) -> None:
        if options.style == "async":
            asyncio.run(gathered(n))
        else:
            {"calls": calls, "threads": threads}[options.style](n)

    run(5)  # starts the server
    begin = time.perf_counter()
    run(options.n)
    seconds = time.perf_counter() - begin
    report("prefect", "prefect", "tasks", options.n, seconds, {"style": options.style, "store": "SQLite"})


if __name__ == "__main__":
    main()
