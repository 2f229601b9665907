"""`make bench-engine`: ours and the peers', the same work, one run, one PostgreSQL with fsync on; prints ratios.

The machine is noisy and never the same twice, so an absolute number says little: every line is a ratio of
medians taken in this run, in turns, with the target it should reach. `--rounds` takes more of each.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import floor  # noqa: E402
from bench.peers import run as peers  # noqa: E402
from bench.postgres import create_database, postgres, settings  # noqa: E402


@dataclass(frozen=True)
class Line:
    """One ratio: more is better when `least` is given, less when `most` is."""

    what: str
    ours: str
    theirs: str
    ratio: float
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        mark, target = "    ", "no target"
        if self.least is not None:
            mark, target = "ok  " if self.ratio >= self.least else "MISS", f"≥ {self.least:g}×"
        elif self.most is not None:
            mark, target = "ok  " if self.ratio <= self.most else "MISS", f"≤ {self.most:g}×"
        return f"{mark} {self.what:<52} {self.ratio:>9.2f}×  {target:>9}   ours {self.ours:<16} against {self.theirs}"


def ours(workload: str, url: str, *arguments: str) -> dict[str, Any]:
    """Runs a workload of Hark in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.ours", workload, url, *arguments],
        check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    return found


def wall(*command: str) -> float:
    """Seconds a command takes, the best of five: a start is disturbed, never hurried."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


class Bench:
    def __init__(self, server: str, rounds: int, quick: bool) -> None:
        self.server = server
        self.rounds = rounds
        self.quick = quick
        self.names = 0

    def database(self) -> str:
        self.names += 1
        return create_database(self.server, f"bench_hark_{self.names}")

    def on_sqlite(self, work: Callable[[str], Any]) -> Any:
        with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
            return work(f"sqlite:///{folder}/bench.db")

    def median(self, work: Callable[[], float]) -> float:
        return statistics.median(work() for _ in range(self.rounds))

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
            Line("10-step workflow, 500 in flight, against DBOS", _rate(mine), _rate(dbos), mine / dbos, least=60),
            Line(
                "10-step workflow, 500 in flight, against Absurd", _rate(mine), _rate(absurd), mine / absurd, least=20
            ),
            Line("the same, Absurd with 16 clients in its process", _rate(mine), _rate(many), mine / many),
            Line("10-step workflow, against the raw UPDATE", _rate(mine), _rate(raw), mine / raw, least=0.2),
            Line("10-step workflow on SQLite, against DBOS", _rate(lite), _rate(dbos_lite), lite / dbos_lite, least=60),
        ]

    def signals(self) -> list[Line]:
        mine = self.rate("signals", "--in-flight", "5000")
        dbos = self.median(lambda: peers.run("dbos", "signals", self.server)["per_second"])
        absurd = self.median(lambda: peers.run("absurd", "signals", self.server)["per_second"])
        return [
            Line("5,000 parked, signalled, all done, against DBOS", _rate(mine), _rate(dbos), mine / dbos, least=50),
            Line("the same, against Absurd", _rate(mine), _rate(absurd), mine / absurd),
        ]

    def latencies(self) -> list[Line]:
        commit = asyncio.run(floor.postgres_bare_commit(self.database()))
        same = self.median(lambda: ours("latency", self.database())["median_seconds"])
        apart = self.median(lambda: ours("latency_apart", self.database())["median_seconds"])
        late = self.median(lambda: ours("timers", self.database())["median_seconds"])
        unit = _ms(commit)
        return [
            Line("signal to step, idle, one process, in bare commits", _ms(same), unit, same / commit, most=10),
            Line("signal to step, idle, two processes, in bare commits", _ms(apart), unit, apart / commit, most=20),
            Line("due timer to step, idle, against 50 ms", _ms(late), "50 ms", late / 0.05, most=1),
        ]

    def sizes(self) -> list[Line]:
        grown = ours("memory", self.database(), "--n", "10000" if self.quick else "100000")["grown_bytes"]
        wide = self.rate("broadcast", "--n", "5000" if self.quick else "50000")
        one, two = self.rate("steps"), self.rate("crowd")
        one = statistics.median([one, self.rate("steps")])
        return [
            Line("100,000 parked: growth of the worker, against 10 MB", _mb(grown), "10 MB", grown / 1e7, most=1),
            Line("broadcast to 50,000, against 10,000 per second", _rate(wide), "10,000/s", wide / 10_000, least=1),
            Line("two worker processes, against one", _rate(two), _rate(one), two / one, least=0.95),
        ]

    def beside(self) -> list[Line]:
        with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
            commit = floor.sqlite_bare_commit(Path(folder) / "floor.db")
        slow = self.median(lambda: self.on_sqlite(lambda url: ours("beside", url))["p95_seconds"])
        what = "signal beside a saturated SQLite worker, p95, in commits"
        return [Line(what, _ms(slow), _ms(commit), slow / commit, most=50)]

    def starts(self) -> list[Line]:
        bare, hark = wall("-c", "import msgspec, asyncio"), wall("-c", "import hark")
        life = self.on_sqlite(lambda url: wall("-m", "bench.ours", "first", url))
        return [
            Line("import hark, against import msgspec, asyncio", _ms(hark), _ms(bare), hark / bare, most=3),
            Line("process start to first machine done, against import hark", _ms(life), _ms(hark), life / hark, most=4),
        ]

    def deadlocks(self) -> int:
        import asyncpg

        async def count() -> int:
            db = await asyncpg.connect(self.server)
            found = await db.fetchval(
                "SELECT coalesce(sum(deadlocks), 0)::int FROM pg_stat_database WHERE datname LIKE 'bench_hark%'"
            )
            await db.close()
            return int(found)

        return asyncio.run(count())


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured; the median counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the large sizes")
    parser.add_argument("--only", help="steps, signals, latencies, sizes, beside or starts")
    options = parser.parse_args()
    with postgres() as server:
        print("PostgreSQL:", ", ".join(f"{name} {value}" for name, value in settings(server).items()), flush=True)
        bench = Bench(server, options.rounds, options.quick)
        for group in ("starts", "latencies", "steps", "signals", "beside", "sizes"):
            if options.only in (None, group):
                for line in getattr(bench, group)():
                    print(line, flush=True)
        print(f"{'ok  ' if bench.deadlocks() == 0 else 'MISS'} deadlocks in our databases: {bench.deadlocks()}")


if __name__ == "__main__":
    main()
