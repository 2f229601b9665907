"""A task worker in Python that uses nothing of Hark but its HTTP API: any language can do the same.

    hark serve
    python worker.py http://localhost:4097 resize

It takes one task at a time, renews the lease while it works, and reports what became of the task. When it dies, the
lease runs out and another worker gets the task, with the last checkpoint.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import httpx

LEASE = 30  # seconds


def resize(task: dict[str, Any], keep: Keep) -> Any:
    """The work itself. It continues after the last checkpoint."""
    done = task["checkpoint"] or []
    for size in (100, 200, 400):
        if size not in done:
            done = [*done, size]
            keep.beat(checkpoint=done, stream=f"{size} px", details={"done": len(done), "of": 3})
    return {"url": task["inputs"]["url"], "sizes": done}


class Cancelled(Exception):
    """The task was cancelled, or another worker has it."""


class Keep:
    """Renews the lease of a task three times in its length, until the task has ended."""

    def __init__(self, client: httpx.Client, task: dict[str, Any]) -> None:
        self._client, self._task = client, task
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def beat(self, **report: Any) -> None:
        response = self._client.post(
            f"/tasks/{self._task['id']}/heartbeat", json={"token": self._task["token"], **report}
        )
        if response.status_code == 409 or response.raise_for_status().json()["cancelled"]:
            raise Cancelled

    def _run(self) -> None:
        while not self._over.wait(LEASE / 3):
            try:
                self.beat()
            except (Cancelled, httpx.HTTPError):
                return  # the next call of the work says so

    def __enter__(self) -> Keep:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()


def run(client: httpx.Client, task: dict[str, Any]) -> None:
    path = f"/tasks/{task['id']}"
    try:
        with Keep(client, task) as keep:
            output = resize(task, keep)
    except Cancelled:
        print(f"{task['name']}: dropped")
        return
    except Exception as error:
        client.post(f"{path}/fail", json={"token": task["token"], "error": repr(error)})
        return
    client.post(f"{path}/complete", json={"token": task["token"], "output": output})
    print(f"{task['name']}: {output}", flush=True)


def main(url: str, *handlers: str) -> None:
    token = os.environ.get("HARK_TOKEN")  # of `hark token create --scope work`; none is needed on the same machine
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        while True:
            body = {"worker": "worker.py", "handlers": handlers, "max": 1, "lease": LEASE, "wait": 30}
            for task in client.post("/tasks/fetch", json=body).raise_for_status().json():
                run(client, task)


if __name__ == "__main__":
    main(*sys.argv[1:])
