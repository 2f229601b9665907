"""`make bench-scale`: whether signals stay fast, and tables small, with very many parked instances, on PostgreSQL.

Every latency is compared with the idle one of the same run: the same signals at the same rate before the fill, when
almost nothing is parked. Latencies are those of a signal from another process, from the time at which it was to be
sent to the first line of the step that it wakes. `--quick` is a fiftieth of the work; progress goes to stderr.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import floor  # noqa: E402
from bench.postgres import create_database, postgres, query, settings  # noqa: E402
from bench.scale_work import OTHER_QUEUE, QUEUES, STEPS_PER_SIGNAL  # noqa: E402
from bench.table import Line, deadlocks, mb, ms  # noqa: E402

IDLE_ORDERS = 1000  # parked for the idle figures
CHUNK = 5000  # instances per start_many
BACKLOG = 20_000  # instances that may wait for the worker during a fill
AFTER_BROADCAST = 2.0  # seconds
PATIENCE = 300.0  # seconds without any progress after which the run fails
KEPT = ("events", "inbox")  # tables whose rows are kept until retention removes them: they grow with every step
OTHER, SAME = "other-queue", "same-queue"  # the two broadcasts

# The conditions are those of two indexes: a scan of all instances, again and again, would be most of the work.
BUSY = """SET enable_seqscan = off;
          SELECT (SELECT count(*) FROM hark.instances
                  WHERE status = 'runnable' AND blocked_on IS NULL AND due_at IS NULL)
               + (SELECT count(*) FROM hark.instances WHERE lease_owner IS NOT NULL)"""
UPDATED = """SELECT json_build_object('rows', n_tup_upd, 'hot', n_tup_hot_upd) FROM pg_stat_user_tables
             WHERE schemaname = 'hark' AND relname = 'instances'"""
SIZES = """SELECT coalesce(json_object_agg(relname, pg_total_relation_size(oid)), '{}') FROM pg_class
           WHERE relnamespace = 'hark'::regnamespace AND relkind = 'r'"""


@dataclass(frozen=True)
class Size:
    parked: int
    subscribers: int
    updates: int
    rate: float
    seconds: float
    rounds: int


@dataclass(frozen=True)
class Latency:
    p50: float
    p99: float


class Process:
    """A process of bench/scale_work.py."""

    def __init__(self, role: str, url: str) -> None:
        self._role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.scale_work", role, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._responses = self._process.stdin, self._process.stdout

    def request(self, do: str, **arguments: Any) -> None:
        self._requests.write(json.dumps({"do": do, **arguments}) + "\n")
        self._requests.flush()

    def response(self) -> Any:
        line = self._responses.readline()
        if not line:
            raise RuntimeError(f"The {self._role} ended with exit code {self._process.wait()}; see its log above.")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> Any:
        self.request(do, **arguments)
        return self.response()

    def close(self) -> None:
        self._requests.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Scale:
    """One database with a worker, a client that sends the measured signals, and one for everything else."""

    def __init__(self, server: str, size: Size, processes: ExitStack) -> None:
        self.url = create_database(server, "bench_hark_scale")
        self.floor = create_database(server, "bench_floor")
        self.size = size
        self.worker, self.sender, self.other = (
            self._process(processes, role) for role in ("worker", "client", "client")
        )
        self.orders = 0

    def _process(self, processes: ExitStack, role: str) -> Process:
        process = Process(role, self.url)
        processes.callback(process.close)
        return process

    # -- fill -------------------------------------------------------------------------------------

    def busy(self) -> int:
        """How many instances are executing or could be."""
        return int(query(self.url, BUSY))

    def wait_until_busy(self, most: int, pause: float = 0.1) -> None:
        """Wait until at most this many instances are left to execute; look every `pause` seconds."""
        last, changed = -1, time.monotonic()
        while (left := self.busy()) > most:
            if left != last:
                last, changed = left, time.monotonic()
            elif time.monotonic() - changed > PATIENCE:
                raise RuntimeError(f"The worker made no progress for {PATIENCE:.0f} seconds; {left} instances wait.")
            time.sleep(pause)

    def park_orders(self, total: int) -> None:
        """Start orders until there are `total`, and wait until all are parked."""
        for first, count in _chunks(self.orders, total, f"of {total:,} instances started"):
            self.other.ask("start_orders", first=first, count=count)
            self.wait_until_busy(BACKLOG)
        self.orders = max(self.orders, total)
        self.wait_until_busy(0)

    def park_subscribers(self, topic: str, queue: str) -> None:
        for _, count in _chunks(0, self.size.subscribers, f"of {self.size.subscribers:,} subscribers started"):
            self.other.ask("start_subscribers", topic=topic, queue=queue, count=count)
            self.wait_until_busy(BACKLOG)
        self.wait_until_busy(0)

    def settle(self) -> None:
        """Leave what a fill leaves behind to no measurement: dead rows, stale statistics, unwritten pages."""
        _say("vacuum and checkpoint after the fill")
        query(self.url, "VACUUM (ANALYZE)")
        query(self.url, "CHECKPOINT")

    # -- measure ----------------------------------------------------------------------------------

    def latency(self, what: str, topic: str | None = None) -> Latency:
        """The median over rounds; with a topic, of the signals of the two seconds after a broadcast."""
        self._round(1.0, seed=0)  # to warm up
        rounds = []
        for number in range(self.size.rounds):
            found = self._round(self.size.seconds if topic is None else AFTER_BROADCAST, seed=number + 1, topic=topic)
            rounds.append(Latency(_percentile(found, 50), _percentile(found, 99)))
            _say(f"{what}, round {number + 1}: p50 {ms(rounds[-1].p50)}, p99 {ms(rounds[-1].p99)}")
        return Latency(statistics.median(one.p50 for one in rounds), statistics.median(one.p99 for one in rounds))

    def _round(self, seconds: float, seed: int, topic: str | None = None) -> list[float]:
        """Seconds from the time of each signal to its step."""
        begin, count = time.monotonic() + 0.5, int(self.size.rate * seconds)
        self.sender.request("signal", orders=self.orders, begin=begin, rate=self.size.rate, count=count, seed=seed)
        if topic is not None:
            sent = self.other.ask("broadcast", topic=topic, at=begin)
            assert sent["reached"] == self.size.subscribers, sent
            _say(f"broadcast to {sent['reached']:,} committed after {ms(sent['seconds'])}")
        signals = self.sender.response()
        if signals["late"] > 0.01:
            _say(f"the sender was late by up to {ms(signals['late'])}, which is part of the latencies")
        times = self._steps(count)
        self.wait_until_busy(0)
        return [times[f"{number}"] - at for number, at in enumerate(signals["schedule"])]

    def _steps(self, count: int) -> dict[str, float]:
        """When the step of each signal began, once all have run."""
        last, changed = -1, time.monotonic()
        while True:
            found = self.worker.ask("take", wanted=count)
            if found["count"] == count:
                times: dict[str, float] = found["times"]
                return times
            if found["count"] != last:
                last, changed = found["count"], time.monotonic()
            elif time.monotonic() - changed > PATIENCE:
                raise RuntimeError(f"Only {last} of {count} signals were followed by a step.")
            time.sleep(0.1)

    def bare_commit(self) -> float:
        return asyncio.run(floor.postgres_bare_commit(self.floor))

    def memory(self) -> int:
        found: int = self.worker.ask("memory")
        return found

    def sizes(self) -> dict[str, int]:
        """Bytes of each table with its indexes and its long values."""
        found: dict[str, int] = json.loads(query(self.url, SIZES))
        return found

    def update(self) -> None:
        """Execute the steps that are counted as updates, by orders in a random sequence; each parks again.

        There are never more of them than slots: a step of a busy queue gives its slot to the next instance, and then
        costs two updates with changes of indexes instead of one without.
        """
        signals, slots = self.size.updates // STEPS_PER_SIGNAL, min(QUEUES["default"], self.orders)
        sequence = random.Random(0).sample(range(self.orders), self.orders)
        before = json.loads(query(self.url, UPDATED))
        for first, count in _chunks(0, signals, f"of {signals:,} signals sent, {STEPS_PER_SIGNAL} steps each", slots):
            numbers = [sequence[number % self.orders] for number in range(first, first + count)]
            self.other.ask("step_orders", numbers=numbers)
            self.wait_until_busy(0, pause=0.01)
        time.sleep(1)  # PostgreSQL counts with a delay
        after = json.loads(query(self.url, UPDATED))
        rows, hot = after["rows"] - before["rows"], after["hot"] - before["hot"]
        _say(f"{signals * STEPS_PER_SIGNAL:,} steps were {rows:,} updates of rows, {hot:,} of them without an index")


def run(scale: Scale) -> Iterator[Line]:
    size = scale.size
    scale.park_orders(IDLE_ORDERS)
    commit = scale.bare_commit()
    idle = scale.latency("idle")
    memory = scale.memory()
    scale.park_orders(size.parked)
    scale.park_subscribers(OTHER, OTHER_QUEUE)
    scale.park_subscribers(SAME, "default")
    scale.settle()
    later = scale.bare_commit()
    yield Line("bare commit after the fill, against before it", ms(later), ms(commit), later / commit)
    parked = f"{size.parked:,} parked"
    yield from _lines(f"{parked}, {size.rate:.0f} signals a second", scale.latency(parked), idle, target=True)
    what = f"the two seconds after a broadcast to {size.subscribers:,}"
    yield from _lines(f"{what}, other queue", scale.latency("other queue", OTHER), idle, target=True)
    yield from _lines(f"{what}, same queue", scale.latency("same queue", SAME), idle, target=False)
    before = scale.sizes()
    scale.update()
    yield from _growth(f"after {size.updates:,} updates", before, scale.sizes())
    grown = scale.memory()
    yield Line("memory of the worker at the end, against idle", mb(grown), mb(memory), grown / memory)


def _lines(what: str, found: Latency, idle: Latency, *, target: bool) -> Iterator[Line]:
    for name, ours, theirs, most in (("p50", found.p50, idle.p50, 1.3), ("p99", found.p99, idle.p99, 1.5)):
        yield Line(f"{what}: {name}", ms(ours), ms(theirs), ours / theirs, most=most if target else None)


def _growth(what: str, before: dict[str, int], after: dict[str, int]) -> Iterator[Line]:
    old, new = sum(before.values()), sum(after.values())
    yield Line(f"all tables {what}", mb(new), mb(old), new / old, most=1.2)
    old, new = (sum(size for table, size in found.items() if table not in KEPT) for found in (before, after))
    yield Line("the same without events and signals", mb(new), mb(old), new / old)
    for table in sorted(after, key=lambda one: before.get(one, 0) - after[one])[:4]:
        yield Line(f"  of these, {table}", mb(after[table]), mb(before[table]), after[table] / max(before[table], 1))


def _chunks(first: int, total: int, what: str, most: int = CHUNK) -> Iterator[tuple[int, int]]:
    """The first number and the size of each chunk; says every few seconds how far it is."""
    said, size = time.monotonic(), min(CHUNK, most)
    for at in range(first, total, size):
        yield at, min(size, total - at)
        if time.monotonic() - said > 5 or at + size >= total:
            said = time.monotonic()
            _say(f"{min(at + size, total):,} {what}")


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use the small sizes that are part of `make bench`")
    parser.add_argument("--parked", type=int, help="parked instances; 1,000,000, or 20,000 with --quick")
    parser.add_argument("--subscribers", type=int, help="of each broadcast; 20,000, or 1,000 with --quick")
    parser.add_argument("--updates", type=int, help="steps for the size of tables; 2,000,000, or 20,000 with --quick")
    parser.add_argument("--rate", type=float, default=200, help="signals per second")
    parser.add_argument("--seconds", type=float, help="of signals per round; 10, or 3 with --quick")
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the median is printed")
    options = parser.parse_args()
    parked, subscribers, updates, seconds = (
        (20_000, 1_000, 20_000, 3) if options.quick else (1_000_000, 20_000, 2_000_000, 10)
    )
    size = Size(
        parked=options.parked or parked,
        subscribers=options.subscribers or subscribers,
        updates=options.updates or updates,
        rate=options.rate,
        seconds=options.seconds or seconds,
        rounds=options.rounds,
    )
    with postgres() as server:
        print("PostgreSQL:", ", ".join(f"{name} {value}" for name, value in settings(server).items()), flush=True)
        with ExitStack() as processes:
            for line in run(Scale(server, size, processes)):
                print(line, flush=True)
        print(deadlocks(server))


if __name__ == "__main__":
    main()
