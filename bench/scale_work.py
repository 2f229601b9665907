"""The processes of bench/scale.py: `python -m bench.scale_work worker|client URL` obeys one JSON line at a time.

Each line on stdin names a method and its arguments, and is answered by one JSON line on stdout. A worker executes all
queues and notes when the measured steps began. A client starts, signals and broadcasts; it is open for the whole run,
also while it has nothing to send, so that what its being there costs is in every figure.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil  # type: ignore[import-untyped]

from hark import Await, Broadcast, Context, Hark, Machine, Next, Start, step

MONTH = 30 * 86400
STEPS_PER_SIGNAL = 10
OTHER_QUEUE = "news"
QUEUES = {"default": 100, OTHER_QUEUE: 100}  # the number of slots that a worker has by default
stepped: dict[int, float] = {}


class Order(Machine):
    """Parked until it is signalled; takes some steps and parks again."""

    @step
    async def start(self, ctx: Context[dict[str, Any]]) -> Await:
        return Await("go", then=self.woken, timeout=MONTH)

    @step
    async def woken(self, ctx: Context[dict[str, Any]]) -> Next:
        now = time.monotonic()
        for signal in ctx.awaited:
            if "number" in signal.payload:
                stepped[signal.payload["number"]] = now
            ctx.state["left"] = signal.payload.get("steps", 0)
        return Next(self.work if ctx.state["left"] else self.start)

    @step
    async def work(self, ctx: Context[dict[str, Any]]) -> Next:
        ctx.state["left"] -= 1
        return Next(self.work if ctx.state["left"] else self.start)


class Subscriber(Machine):
    """Waits for the broadcast that its state names, and then for the next one."""

    @step
    async def start(self, ctx: Context[dict[str, Any]]) -> Await:
        return Await(Broadcast(ctx.state["topic"]), then=self.woken)

    @step
    async def woken(self, ctx: Context[dict[str, Any]]) -> Next:
        return Next(self.start)


def order_id(number: int) -> str:
    """An id of the same form as those that Hark generates, which follows from a number: a client keeps no list."""
    return f"0198f2c4-7b1e-7000-8000-{number:012x}"


def app_on(url: str) -> Hark:
    app = Hark(url)
    app.register(Order, Subscriber)
    return app


def collect_garbage_less_often() -> None:
    """As `hark worker` does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


async def work(url: str) -> None:
    app = app_on(url)

    def take(wanted: int) -> dict[str, Any]:
        """When each of the measured steps began, by the number of its signal; nothing until all have run."""
        if len(stepped) < wanted:
            return {"count": len(stepped), "times": {}}
        times = dict(stepped)
        stepped.clear()
        return {"count": len(times), "times": times}

    def memory() -> int:
        return int(psutil.Process().memory_info().rss)

    async with app, app.worker(QUEUES):
        collect_garbage_less_often()
        methods: dict[str, Callable[..., Any]] = {"take": take, "memory": memory}
        while line := await asyncio.to_thread(sys.stdin.readline):
            obey(line, methods)


class Client:
    """Synchronous: the thread that sends can sleep exactly, and the clerk has a thread of its own."""

    def __init__(self, app: Hark) -> None:
        self.app = app

    def start_orders(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        self.app.start_many(
            [Start(Order, {"order": f"o-{n:07d}", "paid": True, "left": 0}, id=order_id(n)) for n in numbers]
        ).result()

    def start_subscribers(self, topic: str, queue: str, count: int) -> None:
        self.app.start_many([Start(Subscriber, {"topic": topic}, queue=queue)] * count).result()

    def step_orders(self, numbers: list[int]) -> None:
        """Wake these orders for some steps each: `woken`, `work` several times, `start`."""
        payload = {"steps": STEPS_PER_SIGNAL - 2}
        sent = [self.app.signal(order_id(number), "go", payload) for number in numbers]
        for reply in sent:
            reply.result()

    def signal(self, orders: int, begin: float, rate: float, count: int, seed: int) -> dict[str, Any]:
        """Send `count` signals to random ones of the first `orders` orders, at times that are fixed in advance.

        A signal is sent at its time whether or not earlier ones have been delivered; one that is late, because this
        process was, is sent immediately. Latencies are measured from the fixed times, so being late counts too.
        """
        chosen = random.Random(seed)
        targets = chosen.sample(range(orders), count) if count <= orders else chosen.choices(range(orders), k=count)
        # A random place within each interval: an even rhythm could coincide with one of the engine.
        schedule = [begin + (number + chosen.random()) / rate for number in range(count)]
        late, sent = 0.0, []
        for number, (at, target) in enumerate(zip(schedule, targets, strict=True)):
            if (left := at - time.monotonic()) > 0:
                time.sleep(left)
            late = max(late, time.monotonic() - at)
            sent.append(self.app.signal(order_id(target), "go", {"number": number}))
        for reply in sent:
            reply.result()
        return {"schedule": schedule, "late": late}

    def broadcast(self, topic: str, at: float) -> dict[str, Any]:
        """Send one broadcast at this time; return how many it reached, and how long it took."""
        time.sleep(max(0.0, at - time.monotonic()))
        reached = self.app.broadcast(topic, {"price": 1}).result()
        return {"reached": reached, "seconds": time.monotonic() - at}


def serve_client(url: str) -> None:
    with app_on(url) as app:
        collect_garbage_less_often()
        client = Client(app)
        names = ("start_orders", "start_subscribers", "step_orders", "signal", "broadcast")
        methods = {name: getattr(client, name) for name in names}
        for line in sys.stdin:
            obey(line, methods)


def obey(line: str, methods: dict[str, Callable[..., Any]]) -> None:
    request = json.loads(line)
    print(json.dumps(methods[request.pop("do")](**request)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("worker", "client"))
    parser.add_argument("url")
    options = parser.parse_args()
    if options.role == "client":
        serve_client(options.url)
    else:
        import uvloop  # as `hark worker` does

        uvloop.run(work(options.url))


if __name__ == "__main__":
    main()
