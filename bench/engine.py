"""`make bench-engine`: Hark and its peers do the same work in one run, on one PostgreSQL with fsync on; prints ratios.

Machines are noisy and differ from each other, so an absolute number says little: every line is a ratio of
medians from this run, measured alternately, with the target it should reach. `--rounds` measures more often.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
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


def sqlite_bare_commit() -> float:
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
        return floor.sqlite_bare_commit(Path(folder) / "floor.db")


class Bench(table.Bench):
    GROUPS = ("starts", "latencies", "steps", "signals", "beside", "sizes")

    def ours(self, found: str, workload: str, *arguments: str) -> Callable[[], float]:
        return lambda: ours(workload, self.database(), *arguments)[found]

    def peer(self, name: str, workload: str, *arguments: str) -> Callable[[], float]:
        return lambda: peers.run(name, workload, self.server, *arguments)["per_second"]

    def bare_commit(self) -> float:
        return asyncio.run(floor.postgres_bare_commit(self.database()))

    def raw_update(self) -> float:
        return asyncio.run(floor.postgres_batches(self.database()))

    def steps(self) -> list[Line]:
        steps = self.ours("per_second", "steps")
        found = self.in_turns(
            raw_before=self.raw_update,
            mine=steps,
            raw_after=self.raw_update,
            dbos=self.peer("dbos", "steps"),
            absurd=self.peer("absurd", "steps", "--clients", "1"),
            many=self.peer("absurd", "steps"),
            mine_again=steps,
            lite=lambda: self.on_sqlite(lambda url: ours("steps", url))["per_second"],
            dbos_lite=lambda: peers.run_on_sqlite("dbos", "steps")["per_second"],
        )
        beside_raw, raw = found["mine"], fmean([found["raw_before"], found["raw_after"]])
        mine, dbos, absurd, many = (
            fmean([found["mine"], found["mine_again"]]),
            found["dbos"],
            found["absurd"],
            found["many"],
        )
        lite, dbos_lite = found["lite"], found["dbos_lite"]
        return [
            Line("10-step workflow, 500 in flight, against DBOS", rate(mine), rate(dbos), mine / dbos, least=60),
            Line("10-step workflow, 500 in flight, against Absurd", rate(mine), rate(absurd), mine / absurd, least=20),
            Line("the same, Absurd with 16 clients in its process", rate(mine), rate(many), mine / many),
            Line("10-step workflow, against the raw UPDATE", rate(beside_raw), rate(raw), beside_raw / raw, least=0.3),
            Line("10-step workflow on SQLite, against DBOS", rate(lite), rate(dbos_lite), lite / dbos_lite, least=60),
        ]

    def signals(self) -> list[Line]:
        found = self.in_turns(
            mine=self.ours("per_second", "signals", "--in-flight", "5000"),
            dbos=self.peer("dbos", "signals"),
            absurd=self.peer("absurd", "signals"),
        )
        mine, dbos, absurd = found["mine"], found["dbos"], found["absurd"]
        return [
            Line("5,000 parked, signalled, all done, against DBOS", rate(mine), rate(dbos), mine / dbos, least=75),
            Line("the same, against Absurd", rate(mine), rate(absurd), mine / absurd),
        ]

    def latencies(self) -> list[Line]:
        """The bare commit is measured before and after each latency: the speed of a machine changes within minutes."""
        found = self.in_turns(
            first=self.bare_commit,
            same=self.ours("median_seconds", "latency"),
            second=self.bare_commit,
            apart=self.ours("median_seconds", "latency_apart"),
            third=self.bare_commit,
            late=self.ours("median_seconds", "timers"),
        )
        same, unit = found["same"], fmean([found["first"], found["second"]])
        apart, other = found["apart"], fmean([found["second"], found["third"]])
        late = found["late"]
        return [
            Line("signal to step, idle, one process, in bare commits", ms(same), ms(unit), same / unit, most=4.5),
            Line("signal to step, idle, two processes, in bare commits", ms(apart), ms(other), apart / other, most=9),
            Line("due timer to step, idle, against 50 ms", ms(late), "50 ms", late / 0.05, most=1),
        ]

    def sizes(self) -> list[Line]:
        n, subscribers = (10_000, 5_000) if self.quick else (100_000, 50_000)
        steps = self.ours("per_second", "steps")
        found = self.in_turns(
            grown=self.ours("grown_bytes", "memory", "--n", f"{n}"),
            wide=self.ours("per_second", "broadcast", "--n", f"{subscribers}"),
            one=steps,
            two=self.ours("per_second", "crowd"),
            one_again=steps,
        )
        grown, wide, one, two = found["grown"], found["wide"], fmean([found["one"], found["one_again"]]), found["two"]
        what = f"broadcast to {subscribers:,}, against 10,000 per second"
        return [
            Line(f"{n:,} parked: growth of the worker, against 10 MB", mb(grown), "10 MB", grown / 1e7, most=1),
            Line(what, rate(wide), "10,000/s", wide / 10_000, least=1),
            Line("two worker processes, against one", rate(two), rate(one), two / one, least=1.4),
        ]

    def beside(self) -> list[Line]:
        found = self.in_turns(
            before=sqlite_bare_commit,
            slow=lambda: self.on_sqlite(lambda url: ours("beside", url))["p95_seconds"],
            after=sqlite_bare_commit,
        )
        slow, commit = found["slow"], fmean([found["before"], found["after"]])
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
