"""Measure SpiffWorkflow. Runs in the interpreter of its own environment and prints one JSON line.

The process of bench/bpmn_files.py, read once. `memory` runs instances and stores nothing. `stored` also serialises
each one to a SQLite file, when it is created and when it rests again, each time in a transaction of its own: what a
caller was told survives a crash. `ends` stores it only when it rests. As in SpiffWorkflow's own example application the
specification is stored once and not with each instance. The file has a write-ahead log and is synchronised at each
commit, as Hark's is; nothing is read back, and the garbage collector runs as rarely as in Hark's workers.
"""

import gc
import sqlite3
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from result import report
from SpiffWorkflow.bpmn import BpmnWorkflow
from SpiffWorkflow.bpmn.parser import BpmnParser
from SpiffWorkflow.bpmn.serializer import BpmnWorkflowSerializer
from SpiffWorkflow.bpmn.serializer.config import DEFAULT_CONFIG
from SpiffWorkflow.bpmn.serializer.default.workflow import BpmnWorkflowConverter, WorkflowConverter

gc.set_threshold(20_000, 20, 100)


class WithoutSpec(BpmnWorkflowConverter):  # type: ignore[misc]
    """An instance as it is stored: the name of its specification instead of all of it."""

    def to_dict(self, workflow: Any) -> dict[str, Any]:
        found: dict[str, Any] = WorkflowConverter.to_dict(self, workflow)
        found["spec"] = workflow.spec.name
        found["subprocesses"] = self.mapping_to_dict(workflow.subprocesses)
        found["bpmn_events"] = self.registry.convert(workflow.bpmn_events)
        return found


def specification(text: str) -> Any:
    parser = BpmnParser()
    parser.add_bpmn_str(text.encode())
    return parser.get_spec("scripts")


def saving(url: str) -> Callable[[int, Any], None]:
    """A function that stores an instance under its number."""
    database = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE instances (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")
    config = {**DEFAULT_CONFIG, BpmnWorkflow: WithoutSpec}
    serializer = BpmnWorkflowSerializer(BpmnWorkflowSerializer.configure(config))
    sql = "INSERT INTO instances VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state"

    def save(number: int, workflow: Any) -> None:
        database.execute(sql, (number, serializer.serialize_json(workflow)))

    return save


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=("memory", "stored", "ends"))
    parser.add_argument("url", help="a fresh SQLite file")
    parser.add_argument("--file", type=Path, required=True, help="the BPMN file")
    parser.add_argument("--n", type=int, default=2000, help="instances to run")
    options = parser.parse_args()
    spec = specification(options.file.read_text())
    save = None if options.workload == "memory" else saving(options.url)

    def run(number: int) -> None:
        workflow = BpmnWorkflow(spec)
        workflow.task_tree.data["n"] = number % 10
        if save is not None and options.workload == "stored":
            save(number, workflow)
        workflow.run_all()
        if not workflow.is_completed() or workflow.data["done"] != 3 * (number % 10 + 1):
            sys.exit("the process did not end as it should")
        if save is not None:
            save(number, workflow)

    for number in range(100):
        run(-1 - number)
    begin = time.perf_counter()
    for number in range(options.n):
        run(number)
    seconds = time.perf_counter() - begin
    settings = {"store": "none" if save is None else "SQLite"}
    report("spiff", "SpiffWorkflow", options.workload, options.n, seconds, settings)


if __name__ == "__main__":
    main()
