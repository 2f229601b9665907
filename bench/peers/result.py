"""What the peer scripts share: their command line, and the JSON line that each prints."""

import json
from argparse import ArgumentParser, Namespace
from importlib.metadata import version
from typing import Any

STEPS = 10
PAUSE = 0.02  # seconds before each answer of a latency, as in bench/answers.py


def command_line(description: str) -> ArgumentParser:
    """The arguments of every peer; a peer adds its own."""
    parser = ArgumentParser(description=description)
    parser.add_argument("workload", choices=("steps", "signals", "latency"))
    parser.add_argument("url", help="a fresh database")
    parser.add_argument("--n", type=int, help="workflows to run, instances to signal, or signals one at a time")
    parser.add_argument("--in-flight", type=int, default=500, help="workflows that run at the same time")
    return parser


def parse(parser: ArgumentParser, best: dict[str, dict[str, Any]]) -> Namespace:
    """The given arguments; those left out get the best values for the workload."""
    options = parser.parse_args()
    for name, value in best[options.workload].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def report(peer: str, package: str, workload: str, n: int, seconds: float, settings: dict[str, Any]) -> None:
    """Print the result: the rate of steps or of signalled instances, or the median of a latency."""
    found = {"seconds": round(seconds, 3), "per_second": round((n * STEPS if workload == "steps" else n) / seconds, 1)}
    if workload == "latency":
        found = {"median_seconds": seconds}
    line = {"workload": workload, "peer": peer, "version": version(package), "n": n, **found, "settings": settings}
    print(json.dumps(line), flush=True)
