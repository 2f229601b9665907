"""`make bench-bpmn`: BPMN processes beside machines, beside themselves at another size, and beside peers.

Prints ratios of medians from this run, each with the target it should reach. On PostgreSQL with fsync on, and where the
peer has its own SQLite file, on SQLite. `--rounds` measures more often.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import bpmn_files, table  # noqa: E402
from bench.peers import run as peers  # noqa: E402
from bench.table import Line, hark, ms, rate  # noqa: E402


def on_file(peer: str, workload: str, text: str) -> dict[str, Any]:
    """Run a workload of a peer on a BPMN file."""
    with tempfile.NamedTemporaryFile("w", suffix=".bpmn") as file:
        file.write(text)
        file.flush()
        return peers.run_on_sqlite(peer, workload, "--file", file.name)


class Bench(table.Bench):
    GROUPS = ("services", "scripts", "signal", "many", "parse")

    def ours(self, workload: str, *arguments: str) -> Callable[[], Any]:
        return lambda: hark("process_work", workload, self.database(), *arguments)

    def services(self) -> list[Line]:
        found = self.in_turns(ours=self.ours("services"))["ours"]
        process, machine = found["process"], found["machine"]
        what = "process of 3 service tasks against a machine with 3 children"
        return [Line(what, rate(process), rate(machine), process / machine, least=1 / 3)]

    def scripts(self) -> list[Line]:
        text = bpmn_files.scripts(python=True)
        found = self.in_turns(
            ours=lambda: self.on_sqlite(lambda url: hark("process_work", "scripts", url)["per_second"]),
            stored=lambda: on_file("spiff", "stored", text)["per_second"],
            ends=lambda: on_file("spiff", "ends", text)["per_second"],
            memory=lambda: on_file("spiff", "memory", text)["per_second"],
        )
        ours, stored, ends, memory = (found[key] for key in ("ours", "stored", "ends", "memory"))
        what = "10 elements without handlers, SQLite, against SpiffWorkflow"
        return [
            Line(f"{what}, stored", rate(ours), rate(stored), ours / stored, least=10),
            Line("the same, stored only at its end", rate(ours), rate(ends), ours / ends),
            Line("the same, not stored at all", rate(ours), rate(memory), ours / memory, least=1),
        ]

    def signal(self) -> list[Line]:
        n = 5_000 if self.quick else 50_000
        ours = self.in_turns(ours=self.ours("signal", "--n", f"{n}"))["ours"]["per_second"]
        return [Line(f"a signal for {n:,} processes, all inboxes written", rate(ours), rate(1e4), ours / 1e4, least=1)]

    def many(self) -> list[Line]:
        n = 500 if self.quick else 5000
        found = self.in_turns(ours=self.ours("many", "--n", f"{n}"))["ours"]
        lines = []
        for name in sorted({key.rpartition(" ")[0] for key in found}):
            many, few = found[f"{name} many"], found[f"{name} few"]
            activity, _, loop = name.partition("-")
            what = f"a token of {n:,} against one of 50: {activity} tasks, {loop}"
            lines.append(Line(what, ms(many), ms(few), many / few, most=2))
        return lines

    def parse(self) -> list[Line]:
        text = bpmn_files.large(500)
        found = self.in_turns(
            ours=lambda: hark("process_work", "parse", "sqlite://")["median_seconds"],
            lxml=lambda: on_file("lxml", "parse", text)["median_seconds"],
        )
        ours, lxml = found["ours"], found["lxml"]
        what = "reading and checking a file of 500 elements against lxml"
        return [Line(what, ms(ours), ms(lxml), ours / lxml, most=100)]


if __name__ == "__main__":
    table.main(Bench, __doc__, rounds=3)
