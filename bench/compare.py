"""`make bench-compare BASE=revision`: this tree and an earlier revision do the same work in one run; prints ratios.

For every change of the hot path. Each round measures both trees one after the other, in an order that alternates, so
that a slow minute of the machine affects both alike. Above 1, this tree is faster. Uncommitted changes count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.postgres import create_database, postgres  # noqa: E402


@dataclass(frozen=True)
class Work:
    """A workload of a file in bench/, and the number in its result that counts."""

    what: str
    module: str
    workload: str
    found: str
    arguments: tuple[str, ...] = ()
    sqlite: bool = False

    @property
    def higher_is_better(self) -> bool:
        return self.found in ("per_second", "job", "process")


WORKS = (
    Work("10-step machine, 500 in flight", "ours", "steps", "per_second"),
    Work("10-step machine, SQLite", "ours", "steps", "per_second", sqlite=True),
    Work("5,000 parked, signalled, done", "ours", "signals", "per_second", ("--in-flight", "5000")),
    Work("signal to step, idle, one process", "ours", "latency", "median_seconds"),
    Work("signal to step, idle, two processes", "ours", "latency_apart", "median_seconds"),
    Work("broadcast to 20,000", "ours", "broadcast", "per_second", ("--n", "20000")),
    Work("function of 10 runs, 500 in flight", "answers", "functions", "per_second"),
    Work("replay of 1,000 entries", "answers", "replay", "replay_seconds"),
    Work("2,000 parked functions, answered", "answers", "answer", "per_second", ("--in-flight", "2000")),
    Work("the same over HTTP", "answers", "answer_http", "per_second", ("--in-flight", "2000")),
    Work("answer to resumed, idle, one process", "answers", "latency", "median_seconds"),
    Work("answer to resumed, idle, two processes", "answers", "latency_apart", "median_seconds"),
    Work("answer to resumed, idle, over HTTP", "answers", "latency_http", "median_seconds"),
    Work("job of 100 parallel tasks", "job_work", "fan", "job"),
    Work("signal to a waiting task, idle", "job_work", "wait", "median"),
    Work("BPMN: three service tasks", "bpmn_work", "services", "process"),
    Work("BPMN: a process without handlers", "bpmn_work", "scripts", "per_second"),
    Work("BPMN: a signal for 20,000", "bpmn_work", "signal", "per_second", ("--n", "20000")),
)


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The files of a revision in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="hark-bench-base-") as folder:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def benchmark(tree: Path, work: Work) -> Path:
    """The tree whose benchmark measures `tree`: its own, or ours if its own is older than the workload."""
    file = tree / "bench" / f"{work.module}.py"
    return tree if file.exists() and f'"{work.workload}": (' in file.read_text() else ROOT


def measure(tree: Path, work: Work, server: str) -> float:
    """Run a workload with the code of this tree, on a new database."""
    bench = benchmark(tree, work)
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
        url = f"sqlite:///{folder}/bench.db" if work.sqlite else create_database(server, "bench_compare")
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{work.module}", work.workload, url, *work.arguments],
            check=True, stdout=subprocess.PIPE, text=True, cwd=bench,
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{bench}"},
        )  # fmt: skip
    return float(json.loads(done.stdout)[work.found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the revision to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each; medians are compared")
    parser.add_argument("--only", help="measure only the lines whose description contains this text")
    options = parser.parse_args()
    works = [work for work in WORKS if options.only is None or options.only in work.what]
    if not works:
        parser.error(f"no line contains {options.only!r}; there are: {', '.join(work.what for work in WORKS)}")
    with checkout(options.base) as base, postgres() as server:
        for work in works:
            found: dict[Path, list[float]] = {base: [], ROOT: []}
            for number in range(options.rounds):
                for tree in (base, ROOT) if number % 2 == 0 else (ROOT, base):
                    found[tree].append(measure(tree, work, server))
            before, now = statistics.median(found[base]), statistics.median(found[ROOT])
            ratio = now / before if work.higher_is_better else before / now
            spread = ", ".join(
                f"{mine / theirs if work.higher_is_better else theirs / mine:.2f}"
                for theirs, mine in zip(found[base], found[ROOT], strict=True)
            )
            shown = (
                f"{before:,.0f}/s → {now:,.0f}/s"
                if work.higher_is_better
                else f"{before * 1e3:.2f} → {now * 1e3:.2f} ms"
            )
            print(f"{work.what:<40} {ratio:5.2f}×   {shown:<28} rounds {spread}", flush=True)


if __name__ == "__main__":
    main()
