"""`make bench-functions`: durable functions, awakeables and HTTP of Hark and its peers, on PostgreSQL with fsync on.

Prints ratios of medians from this run, measured alternately, each with the target it should reach. Restate uses a log
of its own, with fsync too, instead of that PostgreSQL. `--rounds` measures more often.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import table  # noqa: E402
from bench.peers import run as peers  # noqa: E402
from bench.table import Line, hark, ms, rate  # noqa: E402


class Bench(table.Bench):
    GROUPS = ("http", "steps", "replay", "answers", "latencies")

    def ours(self, found: str | None, workload: str, *arguments: str, module: str = "answers") -> Callable[[], Any]:
        def run() -> Any:
            result = hark(module, workload, self.database(), *arguments)
            return result if found is None else result[found]

        return run

    def peer(self, found: str, workload: str, name: str, *arguments: str) -> Callable[[], Any]:
        return lambda: peers.run(name, workload, self.server, *arguments)[found]

    def http(self) -> list[Line]:
        n = 1000 if self.quick else 5000
        works = {f"{many}": self.ours(None, "http", "--n", f"{n}", "--in-flight", f"{many}") for many in (64, 256)}
        lines = []
        for many, found in self.in_turns(**works).items():
            resolve, trivial, echo, turns = (found[name] for name in ("resolve", "trivial", "echo", "turns"))
            what = f"resolve over HTTP, {many} connections, against "
            lines += [
                Line(what + "a trivial POST", rate(resolve), rate(trivial), resolve / trivial, least=1 / 3),
                Line(what + "an echo", rate(resolve), rate(echo), resolve / echo),
                Line(f"transactions for {n:,} of them", f"{turns:.0f}", f"{n:,}", turns / n, most=0.5),
            ]
        return lines

    def steps(self) -> list[Line]:
        n = "1000" if self.quick else "3000"
        found = self.in_turns(
            functions=self.ours("per_second", "functions", "--n", n),
            machines=self.ours("per_second", "steps", "--n", n, module="ours"),
        )
        functions, machines = found["functions"], found["machines"]
        what = "function of 10 runs, 500 in flight, against a machine"
        return [Line(what, rate(functions), rate(machines), functions / machines, least=0.5)]

    def replay(self) -> list[Line]:
        n = "1000" if self.quick else "3000"
        found = self.in_turns(
            replay=self.ours("replay_seconds", "replay"),
            functions=self.ours("per_second", "functions", "--n", n),
            machines=self.ours("per_second", "steps", "--n", n, module="ours"),
        )
        replay, own, machine = found["replay"], 1 / found["functions"], 1 / found["machines"]
        return [
            Line("replay of 1,000 entries, in steps of a function", ms(replay), ms(own), replay / own, most=100),
            Line("the same, in steps of a machine", ms(replay), ms(machine), replay / machine, most=80),
        ]

    def answers(self) -> list[Line]:
        n = "500" if self.quick else "2000"
        found = self.in_turns(
            **{
                way: self.ours(None, workload, "--n", n, "--in-flight", n, module=module)
                for way, (module, workload, _) in ANSWERED.items()
            },
            **{
                name: self.peer("per_second", "signals", peer, "--n", n, *arguments)
                for name, (peer, *arguments) in PARKED.items()
            },
        )
        lines = []
        for way, (_, _, targets) in ANSWERED.items():
            mine = found[way]["per_second"]
            for name in PARKED:
                what = f"{int(n):,} parked, answered {way}, against {name}"
                lines.append(Line(what, rate(mine), rate(found[name]), mine / found[name], least=targets.get(name)))
            ran = found[way].get("run_per_second")
            if ran is not None:  # as Restate counts: without the commits of the last results
                what = f"the same until the code has run, {way}, against Restate"
                theirs = found["Restate"]
                lines.append(Line(what, rate(ran), rate(theirs), ran / theirs, least=targets.get("Restate")))
        return lines

    def latencies(self) -> list[Line]:
        found = self.in_turns(
            **{
                way: self.ours("median_seconds", workload, module=module)
                for way, (module, workload, _) in RESUMED.items()
            },
            **{
                name: self.peer("median_seconds", "latency", peer, *arguments)
                for name, (peer, *arguments) in IDLE.items()
            },
        )
        lines = []
        for way, (_, _, targets) in RESUMED.items():
            mine = found[way]
            for name in IDLE:
                if "HTTP" not in way or name in OVER_HTTP:
                    what = f"answer to resumed, idle, {way}, against {name}"
                    lines.append(Line(what, ms(mine), ms(found[name]), mine / found[name], most=targets.get(name)))
        return lines


_APART = "Restate, answered by another process"
# Ours by the way the answer takes: module, workload, and the targets against peers.
ANSWERED: dict[str, tuple[str, str, dict[str, float]]] = {
    "in process": ("answers", "answer", {"DBOS": 10, "Absurd": 12, "Restate": 2}),
    "in process, replayed": ("answers", "answer_replayed", {}),
    "over HTTP": ("answers", "answer_http", {"Restate": 1.1}),
    "over HTTP, worker apart": ("served", "answer", {}),
    "over HTTP, two processes of `hark serve`": ("served", "answer_by_two", {"Restate": 1.1}),
}
RESUMED: dict[str, tuple[str, str, dict[str, float]]] = {
    "one process": ("answers", "latency", {"DBOS": 1, "Absurd": 1, "Restate": 1, "Restate, suspended": 0.7}),
    "one process, replayed": ("answers", "latency_replayed", {}),
    "two processes": ("answers", "latency_apart", {"DBOS": 1, "Absurd": 1, "Restate": 1.7, _APART: 1.7}),
    "over HTTP": ("answers", "latency_http", {"Restate": 1.2, _APART: 1.2}),
    "over HTTP, worker apart": ("served", "latency", {}),
}
PARKED = {
    "DBOS": ("dbos",),
    "Absurd": ("absurd",),
    "Restate": ("restate",),
    "Restate, suspended": ("restate", "--suspend"),
}
IDLE = {
    "DBOS": ("dbos",),
    "Absurd": ("absurd",),
    "Absurd, polling each ms": ("absurd", "--poll-interval", "0.001"),
    "Restate": ("restate",),
    "Restate, suspended": ("restate", "--suspend"),
    _APART: ("restate", "--apart"),
}
OVER_HTTP = tuple(name for name in IDLE if name.startswith("Restate"))  # the peers whose answers come over HTTP too


if __name__ == "__main__":
    table.main(Bench, __doc__, rounds=3)
