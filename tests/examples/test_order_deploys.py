"""The order service of examples/order_service, deployed again and again while 200 orders are in flight.

The versions of its workflow are in order_versions, as a team would write them over weeks: a safe change, a patch, a
version side by side, a wrong change that is rolled back, the end of the patch, and a migration. Workers are real
processes. The shop's own database is the oracle: each order is charged once, and shipped or refunded.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hark import Hark, Instance
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.crash]

FIRST = Path(__file__).resolve().parents[2] / "examples" / "order_service"
LATER = Path(__file__).resolve().parent / "order_versions"
HARK = str(Path(sys.executable).parent / "hark")


class Shop:
    """The folder of the service, its workers, and a caller that has none of its code."""

    def __init__(self, store: Store, folder: Path, app: Hark) -> None:
        self.app = app
        self._folder = folder
        self.db = folder / "shop.db"
        self._environment = {
            **os.environ,
            "HARK_DB": store.url,
            "HARK_SCHEMA": store.options.get("schema", "hark"),
            "ORDERS_SCHEMA": store.options.get("schema", "hark"),
            "SHOP_DB": str(self.db),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._worker: subprocess.Popen[str] | None = None
        self._logs = 0
        self.placed: dict[str, int] = {}
        shutil.copy(FIRST / "shop.py", folder)

    # -- deploys ----------------------------------------------------------------------------------

    def write(self, code: Path) -> None:
        shutil.copy(code, self._folder / "orders.py")

    def hark(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            [HARK, *command],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def check(self) -> tuple[int, str]:
        return self.hark("check", "--app", "orders:app")

    def check_continues(self) -> None:
        code, report = self.check()
        assert code == 0, report

    def deploy(self) -> None:
        """Start a worker with the code that is there, then stop the one before: both run for a moment."""
        before = self._worker
        self._logs += 1
        self.log = self._folder / f"{self._logs}.log"
        with self.log.open("w") as log:
            self._worker = subprocess.Popen(
                [HARK, "worker", "--app", "orders:app"],
                cwd=self._folder, env=self._environment, stdout=log, stderr=log, text=True,
            )  # fmt: skip
        until(lambda: "working" in self.log.read_text(), "the worker")
        if before is not None:
            before.send_signal(signal.SIGTERM)
            assert before.wait(100) == 0

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait(100)

    # -- what the world does ----------------------------------------------------------------------

    def place(self, count: int, amount: int = 1000) -> list[str]:
        """Place orders, and wait until they wait. Every second one is charged at the second attempt."""
        made = [f"{number}" for number in range(len(self.placed), len(self.placed) + count)]
        for reply in [self._start(id, amount + int(id) % 2) for id in made]:
            reply.result()
        self.until_waiting(made)
        return made

    def _start(self, id: str, amount: int) -> object:
        self.placed[id] = amount
        values = {"order_id": id, "item": "tea", "quantity": 1, "amount": amount}
        return self.app.start("order", values, correlation_key=f"order:{id}", correlation_scope="forever")

    def pack(self, ids: Iterable[str]) -> Counter[str]:
        """The warehouse says that orders are packed. It repeats itself."""
        keys = [f"packed-{id}" for id in ids for _ in range(2)]
        sent = [self.app.signal(f"order:{key.removeprefix('packed-')}", "packed", dedup_key=key) for key in keys]
        return Counter(one.result().status for one in sent)

    def answer(self, ids: Iterable[str]) -> None:
        """Approve large orders."""
        for id in ids:
            [question] = self.app.awakeables(job=f"order:{id}", status="PENDING").result()
            self.app.resolve(question.id, {"approved": True}, by="ann").result()

    def statuses(self, ids: Iterable[str]) -> Counter[str]:
        found = self.orders()
        return Counter(found[id].status for id in ids)

    def orders(self) -> dict[str, Instance]:
        found = self.app.list(definition="order", limit=1000).result()
        return {(one.correlation_key or "").removeprefix("order:"): one for one in found}

    def until_waiting(self, ids: list[str]) -> None:
        self.until(ids, "awaiting_signal")

    def until(self, ids: list[str], status: str) -> None:
        until(lambda: self.statuses(ids) == {status: len(ids)}, f"{len(ids)} orders to be {status}", self.log)


def until(condition: Callable[[], bool], what: str, log: Path | None = None) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited for {what}\n{log.read_text() if log else ''}"
        time.sleep(0.05)


@contextmanager
def service(store: Store, folder: Path) -> Iterator[Shop]:
    with Hark(store.url, **store.options) as app:
        shop = Shop(store, folder, app)
        try:
            yield shop
        finally:
            shop.stop()


@pytest.mark.timeout(300)
def test_v3_every_order_ends_as_it_should_although_its_code_is_deployed_again_and_again(
    store: Store, tmp_path: Path
) -> None:
    with service(store, tmp_path) as shop:
        shop.write(FIRST / "orders.py")
        shop.deploy()
        first = shop.place(60)
        large = shop.place(4, amount=20_000)
        shop.pack(first[:10])

        shop.write(LATER / "b_safe.py")
        shop.check_continues()
        shop.deploy()
        second = shop.place(36)
        shop.pack([*first[10:20], *second[:5]])

        shop.write(LATER / "c_patch.py")
        shop.check_continues()
        shop.deploy()
        third = shop.place(40)
        shop.pack([*first[20:30], *second[5:10], *third[:5]])

        shop.write(LATER / "d_versions.py")
        shop.check_continues()
        shop.deploy()
        fourth = shop.place(40)
        assert {shop.orders()[id].version for id in fourth} == {2}
        packed = [*first[:30], *second[:10], *third[:5], *fourth[:5]]
        shop.pack(fourth[:5])
        shop.until(packed, "done")

        held = [*first[30:40], *second[10:20], *third[5:15], *fourth[5:20]]
        cancelled = [first[40], fourth[20]]
        wrong = _deploy_what_is_wrong(shop, held, large[:2], cancelled)
        shop.write(LATER / "d_versions.py")  # rolled back
        assert f"order version 2: {len(wrong)} would not go on" in shop.check()[1]
        shop.deploy()
        shop.until(held, "done")
        shop.until(cancelled, "cancelled")
        shop.until_waiting(large)
        shop.pack(wrong)
        shop.until(wrong, "held")  # they began with the wrong code, and fit no other
        fifth = shop.place(15)

        older = [id for id in (*first, *second, *large) if id not in {*packed, *held, *cancelled}]
        shop.answer(large[2:])
        shop.pack(older)
        shop.until(older, "done")
        code, report = shop.check()
        assert code == 1
        assert f"order version 2: {len(wrong)} would not go on" in report
        assert "ctx.patched('check the address') is not needed any more" in report

        shop.write(LATER / "f_next.py")
        code, report = shop.check()
        assert f"order version 2: {len(wrong)} would not go on" in report
        shop.deploy()
        move = ("instance", "migrate", "--definition", "order", "--status", "held", "--to", "3", "--app", "orders:app")
        assert shop.hark(*move, "--yes")[0] == 0
        shop.check_continues()
        sixth = shop.place(5)
        shop.pack(id for id in (*third, *fourth, *fifth, *sixth) if id not in {*packed, *held, *cancelled})
        shop.until([id for id in shop.placed if id not in cancelled], "done")
    _compare_with_the_shop(shop, cancelled, unchecked={*first, *large, *second}, suspected={*wrong, *sixth})


def _deploy_what_is_wrong(shop: Shop, packed: list[str], answered: list[str], cancelled: list[str]) -> list[str]:
    """Deploy a wrong change although the check names it. Orders that get something are held; none ends. Returns the
    orders that began with it."""
    before = shop.statuses(shop.placed)
    shop.write(LATER / "e_wrong.py")
    code, report = shop.check()
    assert code == 1
    assert f"0 of {before['awaiting_signal']} unfinished instances would go on." in report
    assert "found      run check for fraud" in report
    shop.deploy()
    assert shop.pack(packed) == {"woke": len(packed), "duplicate": len(packed)}
    shop.answer(answered)
    for id in cancelled:
        shop.app.cancel(f"order:{id}", "the customer cancelled").result()
    stopped = [*packed, *answered, *cancelled]
    shop.until(stopped, "held")
    assert shop.pack(packed) == {"duplicate": 2 * len(packed)}
    assert shop.statuses(shop.placed) == before + Counter(held=len(stopped)) - Counter(awaiting_signal=len(stopped))
    return shop.place(5)


def _compare_with_the_shop(shop: Shop, cancelled: list[str], unchecked: set[str], suspected: set[str]) -> None:
    everything = {*shop.placed}
    shipped = everything - {*cancelled}
    with closing(sqlite3.connect(shop.db)) as db:
        assert {id for (id,) in db.execute("SELECT order_id FROM parcels")} == shipped
        charges = list(db.execute("SELECT order_id, amount, tries, refunded FROM charges"))
        charged = everything - {id for id in cancelled if id not in unchecked}  # version 2 charges when it is packed
        assert {id: amount for id, amount, _, _ in charges} == {id: shop.placed[id] for id in charged}
        assert {tries - amount % 2 for _, amount, tries, _ in charges} == {1}  # an odd amount is refused once
        assert {id for id, _, _, refunded in charges if refunded} == {*cancelled} & charged
        assert dict(db.execute("SELECT item, quantity FROM stock"))["tea"] == 1000 - len(shipped)
        notes = Counter(db.execute("SELECT what, order_id FROM notes"))
        assert {*notes.values()} == {1}
        assert {id for what, id in notes if what == "address checked"} == everything - unchecked
        assert {id for what, id in notes if what == "thanked"} <= shipped
        assert {id for what, id in notes if what == "fraud checked"} == suspected
