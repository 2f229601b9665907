"""`make bench-engine`: Hark and its peers do the same work in one run, on one PostgreSQL with fsync on; prints ratios.

Machines are noisy and differ from each other, so an absolute number says little: every line is a ratio of
medians from this run, measured alternately, with the target it should reach. `--rounds` measures more often.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import floor, table  # noqa: E402
from bench.peers import run as peers  # noqa: E402
from bench.table import Line, hark, mb, ms, rate  # noqa: E402


def ours(workload: str, url: str, *arguments: str) -> dict[str, Any]:
    return hark("ours", workload, url, *arguments)


def wall(*command: str) -> float:
    """Seconds a command takes, the best of five: noise can only make a start slower."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


class Bench(table.Bench):
    GROUPS = ("starts", "latencies", "steps", "signals", "beside", "sizes")

    def rate(self, workload: str, *arguments: str) -> float:
        return self.median(lambda: ours(workload, self.database(), *arguments)["per_second"])

    def steps(self) -> list[Line]:
        mine = self.rate("steps")
        dbos = self.median(lambda: peers.run("dbos", "steps", self.server)["per_second"])
        absurd = self.median(lambda: peers.run("absurd", "steps", self.server, "--clients", "1")["per_second"])
        many = self.median(lambda: peers.run("absurd", "steps", self.server)["per_second"])
        mine = statistics.median([mine, self.rate("steps")])
        raw = asyncio.run(floor.postgres_batches(self.database()))
        lite = self.median(lambda: self.on_sqlite(lambda url: ours("steps", url))["per_second"])
        dbos_lite = self.median(lambda: peers.run_on_sqlite("dbos", "steps")["per_second"])
        return [
            Line("10-step workflow, 500 in flight, against DBOS", rate(mine), rate(dbos), mine / dbos, least=60),
            Line("10-step workflow, 500 in flight, against Absurd", rate(mine), rate(absurd), mine / absurd, least=20),
            Line("the same, Absurd with 16 clients in its process", rate(mine), rate(many), mine / many),
            Line("10-step workflow, against the raw UPDATE", rate(mine), rate(raw), mine / raw, least=0.2),
            Line("10-step workflow on SQLite, against DBOS", rate(lite), rate(dbos_lite), lite / dbos_lite, least=60),
        ]

    def signals(self) -> list[Line]:
        mine = self.rate("signals", "--in-flight", "5000")
        dbos = self.median(lambda: peers.run("dbos", "signals", self.server)["per_second"])
        absurd = self.median(lambda: peers.run("absurd", "signals", self.server)["per_second"])
        return [
            Line("5,000 parked, signalled, all done, against DBOS", rate(mine), rate(dbos), mine / dbos, least=50),
            Line("the same, against Absurd", rate(mine), rate(absurd), mine / absurd),
        ]

    def latencies(self) -> list[Line]:
        commit = asyncio.run(floor.postgres_bare_commit(self.database()))
        same = self.median(lambda: ours("latency", self.database())["median_seconds"])
        apart = self.median(lambda: ours("latency_apart", self.database())["median_seconds"])
        late = self.median(lambda: ours("timers", self.database())["median_seconds"])
        unit = ms(commit)
        return [
            Line("signal to step, idle, one process, in bare commits", ms(same), unit, same / commit, most=10),
            Line("signal to step, idle, two processes, in bare commits", ms(apart), unit, apart / commit, most=20),
            Line("due timer to step, idle, against 50 ms", ms(late), "50 ms", late / 0.05, most=1),
        ]

    def sizes(self) -> list[Line]:
        grown = ours("memory", self.database(), "--n", "10000" if self.quick else "100000")["grown_bytes"]
        wide = self.rate("broadcast", "--n", "5000" if self.quick else "50000")
        one, two = self.rate("steps"), self.rate("crowd")
        one = statistics.median([one, self.rate("steps")])
        return [
            Line("100,000 parked: growth of the worker, against 10 MB", mb(grown), "10 MB", grown / 1e7, most=1),
            Line("broadcast to 50,000, against 10,000 per second", rate(wide), "10,000/s", wide / 10_000, least=1),
            Line("two worker processes, against one", rate(two), rate(one), two / one, least=0.95),
        ]

    def beside(self) -> list[Line]:
        with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
            commit = floor.sqlite_bare_commit(Path(folder) / "floor.db")
        slow = self.median(lambda: self.on_sqlite(lambda url: ours("beside", url))["p95_seconds"])
        what = "signal beside a saturated SQLite worker, p95, in commits"
        return [Line(what, ms(slow), ms(commit), slow / commit, most=50)]

    def starts(self) -> list[Line]:
        bare, imported = wall("-c", "import msgspec, asyncio"), wall("-c", "from hark import Hark")
        life = self.on_sqlite(lambda url: wall("-m", "bench.ours", "first", url))
        return [
            Line(
                "from hark import Hark, against import msgspec, asyncio",
                ms(imported),
                ms(bare),
                imported / bare,
                most=3,
            ),
            Line(
                "process start to first machine done, against from hark import Hark",
                ms(life),
                ms(imported),
                life / imported,
                most=4,
            ),
        ]


if __name__ == "__main__":
    table.main(Bench, __doc__, rounds=1)
