"""`make bench-nats`: signals that are put on NATS, beside signals over the store from another process.

Prints ratios of medians from this run, each with the target it should reach. `--rounds` measures more often.
"""

import sys
from pathlib import Path

# Run as a file, this folder would be searched first, and this file found in place of the NATS client.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import table  # noqa: E402
from bench.table import Line, hark, ms, rate  # noqa: E402


class Bench(table.Bench):
    GROUPS = ("latency", "burst")

    def latency(self) -> list[Line]:
        lines = []
        works = {
            "PostgreSQL": lambda: hark("nats_work", "latency", self.database()),
            "SQLite": lambda: self.on_sqlite(lambda url: hark("nats_work", "latency", url)),
        }
        for store, work in works.items():
            found = self.in_turns(latency=work)["latency"]
            what = f"put on NATS to the return of wait_for_signal, idle, {store}"
            put, signal = found["put"], found["signal"]
            lines.append(Line(what, ms(put), f"{ms(signal)} over app.signal", put / signal, most=1.5))
        return lines

    def burst(self) -> list[Line]:
        n = 500 if self.quick else 5000
        found = self.in_turns(burst=lambda: hark("nats_work", "burst", self.database(), "--n", f"{n}"))["burst"]
        put, signal, arrived = found["put"], found["signal"], found["arrived"]
        return [
            Line(f"{n:,} puts in a burst: how many arrive", f"{arrived:,.0f}", f"{n:,}", arrived / n, least=1),
            Line("and how many are committed per second", rate(put), f"{rate(signal)} over app.signal", put / signal),
        ]


if __name__ == "__main__":
    table.main(Bench, __doc__, rounds=3)
