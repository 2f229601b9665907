"""Shared by the tests of NATS: an instance that collects signals, and what it has collected."""

from typing import Any

from hark import Await, Dag, Done, Handle, Hark, Machine, step
from hark.model import json
from tests.support.inspect import query, until
from tests.support.nats_client import PlainClient
from tests.support.stores import Store


class Collector(Machine):
    """Waits for a signal that never comes: everything else stays in its inbox, in the order of arrival."""

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("never", then=self.end)

    @step
    async def end(self, ctx: Any) -> Any:
        return Done()


async def collected(store: Store, instance: Handle[Any], name: str = "s") -> list[Any]:
    """The payloads of the signals that were committed for an instance, in the order of their commits."""
    rows = await query(
        store, f"SELECT payload FROM inbox WHERE instance_id = '{instance.id}' AND name = '{name}' ORDER BY seq"
    )
    return [json.load_for_code(payload) for (payload,) in rows]


async def until_collected(store: Store, instance: Handle[Any], number: int, seconds: float = 60) -> list[Any]:
    """Return them once there are so many."""

    async def enough() -> bool:
        return len(await collected(store, instance)) >= number

    await until(enough, f"{number} signals", seconds)
    return await collected(store, instance)


def waiting_job(app: Hark, *names: str) -> Dag:
    """A job with one task, which waits for these signals one after the other and returns their payloads."""

    @app.handler("wait")
    async def wait(task: Any) -> Any:
        return [await task.wait_for_signal(name, timeout=60) for name in names]

    dag = Dag("waiting")
    dag.task("wait", "wait")
    return dag


def received(app: Hark) -> dict[str, int]:
    """The signals that this process has read from NATS, by outcome."""
    counters = app._clerk.counters.nats
    assert counters is not None
    return dict(counters.received)


async def until_read(client: PlainClient) -> None:
    """Wait until all values of the bucket are acknowledged."""

    async def all_read() -> bool:
        return await client.unread() == 0

    await until(all_read, "all values to be acknowledged", 30)


async def until_reader(app: Hark) -> None:
    """Wait until this process reads the bucket."""
    counters = app._clerk.counters.nats
    assert counters is not None
    await until(lambda: counters.is_reader, "this process to read the bucket", 30)
