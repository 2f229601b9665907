"""What the benchmarks share: a line of their table, alternating rounds, the command line.

Machines are noisy and differ from each other, so an absolute number says little: every line is a ratio of
medians from the same run, measured alternately, with the target it should reach.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.postgres import create_database, postgres, query, settings

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Line:
    """One ratio. With `least`, higher is better; with `most`, lower is better."""

    what: str
    ours: str
    theirs: str
    ratio: float
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        mark, target = "    ", "no target"
        if self.least is not None:
            mark, target = "ok  " if self.ratio >= self.least else "MISS", f"≥ {self.least:.3g}×"
        elif self.most is not None:
            mark, target = "ok  " if self.ratio <= self.most else "MISS", f"≤ {self.most:.3g}×"
        return f"{mark} {self.what:<76} {self.ratio:>9.2f}×  {target:>9}   ours {self.ours:<16} against {self.theirs}"


def hark(module: str, workload: str, url: str, *arguments: str) -> dict[str, Any]:
    """Run a workload of Hark in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{module}", workload, url, *arguments],
        check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    return found


class Bench:
    """A method returns a group of lines; subclasses list their methods, in order, in `GROUPS`."""

    GROUPS: Sequence[str] = ()

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

    def in_turns(self, **works: Callable[[], Any]) -> dict[str, Any]:
        """The median of each. A round runs all of them, so that a slow minute of the machine affects all alike."""
        found: dict[str, list[Any]] = {name: [] for name in works}
        for _ in range(self.rounds):
            for name, work in works.items():
                found[name].append(work())
        return {name: _median(values) for name, values in found.items()}


def _median(values: list[Any]) -> Any:
    """The median of numbers; for dicts, the median of each number in them."""
    if isinstance(values[0], dict):
        return {
            key: _median([one[key] for one in values])
            for key, value in values[0].items()
            if value.__class__ in (int, float)
        }
    return statistics.median(values)


def deadlocks(server: str) -> str:
    """The last line of a table: how many deadlocks there were in our databases; none is the target."""
    sql = "SELECT coalesce(sum(deadlocks), 0)::int FROM pg_stat_database WHERE datname LIKE 'bench_hark%'"
    found = int(query(server, sql))
    return f"{'ok  ' if found == 0 else 'MISS'} deadlocks in our databases: {found}"


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


def main(bench: type[Bench], about: str | None, rounds: int) -> None:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=rounds, help="how often to measure each; the median is printed")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the large sizes")
    parser.add_argument("--only", choices=bench.GROUPS, help="measure one group of lines")
    options = parser.parse_args()
    with postgres() as server:
        print("PostgreSQL:", ", ".join(f"{name} {value}" for name, value in settings(server).items()), flush=True)
        running = bench(server, options.rounds, options.quick)
        for group in bench.GROUPS:
            if options.only in (None, group):
                for line in getattr(running, group)():
                    print(line, flush=True)
        print(deadlocks(server))
