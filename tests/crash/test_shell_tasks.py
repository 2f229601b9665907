"""A worker is killed in the middle of a shell task: nothing of the command survives, nothing is lost (J2, A7)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from hark import Hark, load_job
from tests.crash.processes import Workers, gone
from tests.support.inspect import until
from tests.support.stores import Store

SCRIPT = """
    cd {folder}
    id=$(hark awakeable create --title "Go on?") || exit $?
    echo $id >> ids
    if [ ! -e again ]; then touch again; sleep 1000 & echo $! $$ >> pids; wait; fi
    hark awakeable await $id
"""


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


async def test_a7_a_shell_task_survives_kill_9_of_its_worker_while_it_runs_and_while_it_waits(
    store: Store, tmp_path: Path
) -> None:
    job = load_job({"name": "work", "tasks": [{"name": "ask", "run": SCRIPT.format(folder=tmp_path)}]})
    with Workers(store, tmp_path, lease=9.0) as workers:
        async with Hark(store.url, **store.options, lease=9.0) as app:
            app.register(job)
            started = await app.start(job)

            async def shows(status: str) -> bool:
                await asyncio.sleep(0.05)  # the commands need the processor
                found = await app.get(started.id)
                assert found.status != "failed", found.error
                return bool(found.state["tasks"]["ask"]["status"] == status)

            first = workers.start()
            await until(lambda: lines(tmp_path / "pids"), "the command to run")
            first.kill()
            await gone(first)
            await until(lambda: not any(map(alive, lines(tmp_path / "pids")[0].split())), "the end of its processes")
            await workers.take_back(app)
            second = workers.start()
            await until(lambda: shows("suspended"), "the task to wait")
            second.kill()
            await gone(second)
            [asked] = await app.awakeables(job=started.id)
            assert lines(tmp_path / "ids") == [asked.id] * 2
            await app.resolve(asked.id, {"by": "hand"})
            workers.start()
            await until(lambda: shows("completed"), "the task to end")
            found = await app.get(started.id)
            assert found.state["tasks"]["ask"] == {
                "status": "completed", "attempt": 1, "output": {"by": "hand"}, "error": None
            }  # fmt: skip
            assert lines(tmp_path / "ids") == [asked.id] * 3


async def test_j2_the_command_of_a_frozen_worker_ends_when_another_worker_may_run_it(
    store: Store, tmp_path: Path
) -> None:
    """The worker cannot end it: its guard does, since the lease is not renewed. A lost lease is not an attempt."""
    script = f"""
        cd {tmp_path}
        if [ ! -e again ]; then touch again; sleep 1000 & echo $! $$ >> pids; wait; fi
        echo $HARK_ATTEMPT
    """
    job = load_job({"name": "work", "tasks": [{"name": "stay", "run": script}]})
    with Workers(store, tmp_path, lease=4.0) as workers:
        async with Hark(store.url, **store.options, lease=4.0) as app:
            app.register(job)
            started = await app.start(job)
            first = workers.start()
            await until(lambda: lines(tmp_path / "pids"), "the command to run")
            await workers.freeze(first)
            workers.start()

            async def is_done() -> bool:
                await asyncio.sleep(0.05)
                return (await app.get(started.id)).status == "done"

            await until(is_done, "the other worker to run it")
            assert (await app.get(started.id)).result == {"stay": "1"}
            await until(lambda: not any(map(alive, lines(tmp_path / "pids")[0].split())), "the end of its processes")
