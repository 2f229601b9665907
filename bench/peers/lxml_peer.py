"""Measure lxml: parse a file into a tree. Runs in the interpreter of its own environment and prints one JSON line."""

import json
import statistics
import time
from argparse import ArgumentParser
from importlib.metadata import version
from pathlib import Path

from lxml import etree


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=("parse",))
    parser.add_argument("url", help="not used: nothing is stored")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--n", type=int, default=200)
    options = parser.parse_args()
    data, times = options.file.read_bytes(), []
    for _ in range(options.n):
        begin = time.perf_counter()
        etree.fromstring(data)
        times.append(time.perf_counter() - begin)
    found = {"n": options.n, "median_seconds": statistics.median(times)}
    print(json.dumps({"workload": "parse", "peer": "lxml", "version": version("lxml"), **found}))


if __name__ == "__main__":
    main()
