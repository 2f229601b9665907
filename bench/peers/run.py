"""Run a workload of a peer in the peer's own environment, on a database of its own, and return its result.

`python -m bench.peers.run` runs all of them on one temporary PostgreSQL and prints a JSON line for each.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.peers.venv import PEERS, python
from bench.postgres import create_database, installation, postgres, settings

HERE = Path(__file__).resolve().parent


def run(peer: str, workload: str, server: str, *arguments: str) -> dict[str, Any]:
    """Run `workload` of `peer` on a new database of `server`."""
    return _run(peer, workload, create_database(server, f"bench_{peer}"), *arguments)


def run_on_sqlite(peer: str, workload: str, *arguments: str) -> dict[str, Any]:
    """Run `workload` of `peer` on a new SQLite file."""
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as directory:
        return _run(peer, workload, f"sqlite:///{directory}/bench.db", *arguments)


def _run(peer: str, workload: str, url: str, *arguments: str) -> dict[str, Any]:
    """Run a peer's script. `absurdctl` needs a `psql`, so the one of the server's wheel is put on the path."""
    path = f"{installation() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [python(peer), HERE / f"{peer}_peer.py", workload, url, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    with postgres() as server:
        print(json.dumps({"postgres": settings(server)}), flush=True)
        for workload in ("steps", "signals", "latency"):
            for peer in PEERS:
                if (peer, workload) != ("restate", "steps"):
                    print(json.dumps(run(peer, workload, server)), flush=True)
    print(json.dumps(run_on_sqlite("dbos", "steps")), flush=True)
