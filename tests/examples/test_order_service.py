"""The order service of examples/order_service: a web application and two workers, one of which is killed with kill -9.

Afterwards every order is shipped once, or undone: nothing is lost and nothing is done twice.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.postgres import free_port
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.crash]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "order_service"
BIN = Path(sys.executable).parent
PLAIN = [f"plain-{n}" for n in range(10)]  # every second one is charged at the second attempt
CANCELLED = [f"cancelled-{n}" for n in range(4)]
LATE = [f"late-{n}" for n in range(6)]  # placed after the kill


class Service:
    """The processes of the service, on one store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.shop = folder / "shop.db"
        self._folder = folder
        self._environment = {
            **os.environ,
            "HARK_DB": store.url,
            "ORDERS_SCHEMA": store.options.get("schema", "hark"),
            "ORDERS_LEASE": "2",
            "SHOP_DB": str(self.shop),
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{len(self._processes)}.log").open("wb")
        process = subprocess.Popen(command, cwd=FOLDER, env=self._environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start(str(BIN / "hark"), "worker", "--app", "orders:app")

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(timeout=100)


@contextmanager
def running(store: Store, folder: Path) -> Iterator[tuple[Service, httpx.Client]]:
    service = Service(store, folder)
    port = free_port()  # not one that the kernel may give to a client before the server binds it
    try:
        service.start(sys.executable, "-m", "uvicorn", "api:api", "--port", str(port), "--log-level", "warning")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            until(lambda: _answers(client), "the web application", service)
            yield service, client
    finally:
        service.stop()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/orders/none").status_code == 404
    except httpx.TransportError:
        return False


def until(condition: Callable[[], bool], what: str, service: Service) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, f"waited for {what}\n{service.logs()}"
        time.sleep(0.05)


def place(client: httpx.Client, order_id: str, amount: int, item: str = "tea", quantity: int = 1) -> None:
    body = {"order_id": order_id, "item": item, "quantity": quantity, "amount": amount}
    assert client.post("/orders", json=body).status_code == 201


def show(client: httpx.Client, order_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/orders/{order_id}").raise_for_status().json()
    return found


def test_every_order_is_shipped_once_or_undone_although_a_worker_is_killed(store: Store, tmp_path: Path) -> None:
    with running(store, tmp_path) as (service, client):
        victim = service.worker()
        service.worker()
        for number, order_id in enumerate([*PLAIN, *CANCELLED]):
            place(client, order_id, 1020 + number)
        assert client.post("/orders", json={"order_id": "plain-0", "item": "tea", "amount": 1}).status_code == 409
        place(client, "declined", 1013)
        place(client, "sold-out", 1000, "teapot", 6)
        place(client, "large", 20_000)
        place(client, "refused", 20_001)
        until(lambda: show(client, "plain-0")["progress"] == "packing", "the first order", service)
        victim.send_signal(signal.SIGKILL)
        victim.wait(timeout=100)
        for number, order_id in enumerate(LATE):
            place(client, order_id, 3000 + number)
        service.worker()

        waiting = [*PLAIN, *CANCELLED, *LATE]
        until(lambda: all(show(client, id)["progress"] == "packing" for id in waiting), "all orders to wait", service)
        for order_id in CANCELLED:
            assert client.delete(f"/orders/{order_id}").status_code == 200
        for order_id, approved in (("large", True), ("refused", False)):
            answer(client, service, order_id, {"approved": approved, "reason": "too much"})
        until(lambda: show(client, "large")["progress"] == "packing", "the approved order", service)
        for order_id in (*PLAIN, *LATE, "large"):
            for _ in range(2):  # the warehouse repeats itself
                event = {"event_id": f"packed-{order_id}", "order_id": order_id}
                assert client.post("/webhooks/warehouse", json=event).status_code == 200

        everything = [*waiting, "declined", "sold-out", "large", "refused"]
        ends = ("done", "failed", "cancelled")
        until(lambda: all(show(client, id)["status"] in ends for id in everything), "all orders to end", service)
        shipped = [*PLAIN, *LATE, "large"]
        assert {id: show(client, id)["result"] for id in shipped} == {
            id: {"order_id": id, "tracking": f"parcel-{id}"} for id in shipped
        }
        assert {show(client, id)["status"] for id in CANCELLED} == {"cancelled"}
        assert "CardDeclined: the card was declined for 1013" in show(client, "declined")["error"]
        assert "OutOfStock: fewer than 6 of teapot are left" in show(client, "sold-out")["error"]
        assert "OrderRefused: too much" in show(client, "refused")["error"]
        assert client.delete("/orders/plain-0").status_code == 409
    check_shop(service, shipped)


def answer(client: httpx.Client, service: Service, order_id: str, payload: Any) -> None:
    """Answer the question about an order, over the HTTP API that is mounted in the web application."""

    def asked() -> Any:
        found = client.get("/hark/awakeables", params={"job": f"order:{order_id}", "status": "PENDING"})
        return found.json().get("items")

    until(lambda: bool(asked()), f"the question about {order_id}", service)
    [question] = asked()
    assert question["url"].startswith(f"{client.base_url}/hark/a/prom_1"), question["url"]
    assert client.post(f"/hark/awakeables/{question['id']}/resolve", json=payload).status_code == 200


def check_shop(service: Service, shipped: list[str]) -> None:
    with closing(sqlite3.connect(service.shop)) as db:
        undone = {*CANCELLED, "refused"}
        assert {id for (id,) in db.execute("SELECT order_id FROM parcels")} == set(shipped)
        charged = dict(db.execute("SELECT order_id, refunded FROM charges"))
        assert {id for id, refunded in charged.items() if refunded} == undone
        assert set(charged) == {*shipped, *undone}
        released = dict(db.execute("SELECT order_id, released FROM reservations"))
        assert {id for id, done in released.items() if done} == {*undone, "declined"}
        assert dict(db.execute("SELECT item, quantity FROM stock")) == {"tea": 1000 - len(shipped), "teapot": 5}
