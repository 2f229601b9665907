"""`make bench-jobs`: jobs beside machines, beside themselves at another size, and beside a peer.

Prints ratios of medians from this run, each with the target it should reach. On PostgreSQL with fsync on, and where the
peer has its own SQLite file, on SQLite. `--rounds` measures more often.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import floor, table  # noqa: E402
from bench.peers import run as peers  # noqa: E402
from bench.table import Line, hark, ms, rate  # noqa: E402


class Bench(table.Bench):
    GROUPS = ("fan", "size", "chain", "waits", "streams", "peer")

    def ours(self, workload: str, *arguments: str) -> Callable[[], Any]:
        return lambda: hark("job_work", workload, self.database(), *arguments)

    def fan(self) -> list[Line]:
        found = self.in_turns(fan=self.ours("fan"))["fan"]
        job, machine = found["job"], found["machine"]
        what = "job of 100 no-op tasks against a machine that spawns 100"
        return [Line(what, rate(job), rate(machine), job / machine, least=0.5)]

    def size(self) -> list[Line]:
        n = 500 if self.quick else 5000
        found = self.in_turns(wide=self.ours("wide", "--n", f"{n}"))["wide"]
        many, few = found["many"], found["few"]
        return [Line(f"a task of {n:,} against a task of 100, parallel", ms(many), ms(few), many / few, most=1.5)]

    def chain(self) -> list[Line]:
        n = 300 if self.quick else 1000
        found = self.in_turns(line=self.ours("line", "--n", f"{n}"))["line"]
        last, first = found["last"], found["first"]
        return [Line(f"chain of {n:,} tasks: the last hundred", ms(last), ms(first), last / first, most=1.3)]

    def waits(self) -> list[Line]:
        found = self.in_turns(wait=self.ours("wait"))["wait"]["median"]
        commit = asyncio.run(floor.postgres_bare_commit(self.database()))
        what = "send to the return of wait_for_signal, idle, in bare commits"
        return [Line(what, ms(found), ms(commit), found / commit, most=10)]

    def streams(self) -> list[Line]:
        found = self.in_turns(stream=self.ours("stream"))["stream"]
        alone, beside, chunks = found["alone"], found["beside"], found["chunks"]
        return [
            Line("steps of others while a handler streams", rate(beside), rate(alone), beside / alone, least=0.8),
            Line("chunks per second meanwhile, of 5,000", rate(chunks), rate(5000), chunks / 5000, least=1),
        ]

    def peer(self) -> list[Line]:
        found = self.in_turns(
            ours=lambda: self.on_sqlite(lambda url: hark("job_work", "fan", url)["job"]),
            prefect=lambda: peers.run_on_sqlite("prefect", "steps")["per_second"],
        )
        ours, prefect = found["ours"], found["prefect"]
        return [
            Line("job of 100 no-op tasks against prefect, SQLite", rate(ours), rate(prefect), ours / prefect, least=20)
        ]


if __name__ == "__main__":
    table.main(Bench, __doc__, rounds=3)
