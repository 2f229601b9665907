"""The check of 100,000 live functions with 20 entries each, on both stores, beside a worker.

Prints the processor time and the memory of `hark check` against their bounds, and the steps of a worker beside it
against its steps without it: the check is stopped and continued in turns, so that both are from the same minutes.
`--quick` checks a tenth.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import apsw  # noqa: E402

from bench.check_work import ENTRIES, REAL  # noqa: E402
from bench.postgres import create_database, postgres, query  # noqa: E402
from bench.table import Line, mb, rate  # noqa: E402

SECONDS, BYTES, KEPT = 300.0, 300e6, 0.95
WINDOW = 4.0  # seconds: the rests of the check pass also while it is stopped, so windows are longer than rests
START = 2.0  # seconds in which Python imports the check, before the first window
# The columns that are different in each copy of an instance, by table.
COPIED = {"instances": ["id"], "waits": ["id", "instance_id"], "journal": ["instance_id"]}

Sql = Callable[[str], str]


def copy(run: Sql, columns: Callable[[str], str], prefix: str, times: int) -> None:
    """Copy the rows of all instances so many times."""
    for table, changed in COPIED.items():
        names = run(columns(table)).split()
        values = ", ".join(f"{name} || '-' || n.n" if name in changed else name for name in names)
        numbers = f"WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {times})"
        run(f"INSERT INTO {prefix}{table} ({', '.join(names)}) {numbers} SELECT {values} FROM {prefix}{table}, n")


def columns_on_sqlite(table: str) -> str:
    return f"SELECT name FROM pragma_table_info('{table}')"


def columns_on_postgres(table: str) -> str:
    return (
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = 'hark' AND table_name = '{table}' AND is_generated = 'NEVER'"
    )


class Worker:
    """The process that executes steps."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.check_work", "worker", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def steps(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def working(url: str) -> Iterator[Worker]:
    worker = Worker(url)
    try:
        while worker.steps() < 1000:
            time.sleep(0.1)
        yield worker
    finally:
        worker.close()


def measure(store: str, url: str, instances: int) -> Iterator[Line]:
    with working(url) as worker, tempfile.TemporaryFile("w+") as output:
        command = [str(Path(sys.executable).parent / "hark"), "check", "--app", "bench.check_work:app", "--db", url]
        check = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        time.sleep(START)
        beside: list[float] = []
        alone: list[float] = []
        while True:
            beside.append(_rate(worker))
            pid, status, used = os.wait4(check.pid, os.WNOHANG)
            if pid:
                break
            os.kill(check.pid, signal.SIGSTOP)
            alone.append(_rate(worker))
            os.kill(check.pid, signal.SIGCONT)
        output.seek(0)
        text = output.read()
        assert os.waitstatus_to_exitcode(status) == 0, text
        assert int(text.split()[0]) >= instances, text
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    seconds = SECONDS * instances / 100_000
    with_check, without = statistics.median(beside[: len(alone)]), statistics.median(alone)
    what = f"{store}: {instances:,} functions with {ENTRIES} entries"
    yield Line(f"{what}: processor time of the check", f"{cpu:.1f} s", f"{seconds:.0f} s", cpu / seconds, most=1)
    yield Line(f"{what}: memory of the check", mb(memory), mb(BYTES), memory / BYTES, most=1)
    yield Line(
        f"{what}: steps of a worker beside it ({len(alone)} windows)", rate(with_check), rate(without),
        with_check / without, least=KEPT,
    )  # fmt: skip


def _rate(worker: Worker) -> float:
    before, since = worker.steps(), time.monotonic()
    time.sleep(WINDOW)
    return (worker.steps() - before) / (time.monotonic() - since)


def fill(url: str) -> None:
    subprocess.run([sys.executable, "-m", "bench.check_work", "fill", url], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check a tenth")
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="measure one store")
    parser.add_argument("--instances", type=int, help="live functions; 100,000, or 10,000 with --quick")
    options = parser.parse_args()
    instances = options.instances or (10_000 if options.quick else 100_000)
    if options.only != "postgres":
        on_sqlite(instances)
    if options.only != "sqlite":
        on_postgres(instances)


def on_sqlite(instances: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
        path = Path(folder, "bench.db")

        def run(sql: str) -> str:
            return "\n".join(str(row[0]) for row in apsw.Connection(str(path)).execute(sql))

        fill(f"sqlite:///{path}")
        copy(run, columns_on_sqlite, "", instances // REAL - 1)
        for line in measure("SQLite", f"sqlite:///{path}", instances):
            print(line, flush=True)


def on_postgres(instances: int) -> None:
    with postgres() as server:
        url = create_database(server, "bench_hark_check")

        def run(sql: str) -> str:
            return query(url, sql)

        fill(url)
        copy(run, columns_on_postgres, "hark.", instances // REAL - 1)
        run("VACUUM (ANALYZE)")
        for line in measure("PostgreSQL", url, instances):
            print(line, flush=True)


if __name__ == "__main__":
    main()
