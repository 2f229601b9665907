"""A program that knows NATS and nothing of Hark: it puts keys into a bucket, watches it, and subscribes to streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.kv import KeyValue


class PlainClient:
    """An ordinary NATS client with the bucket that Hark reads."""

    def __init__(self, client: Client, bucket: KeyValue) -> None:
        self.client = client
        self.bucket = bucket
        self.stream = f"KV_{bucket._name}"
        self.js = client.jetstream()

    async def put(self, key: str, value: bytes | str) -> int:
        return await self.bucket.put(key, value.encode() if isinstance(value, str) else value)

    async def put_surely(self, key: str, value: bytes | str, id: str) -> None:
        """As a program that must not lose a signal, nor send it twice: repeat it until the server has it, with an id by
        which the server recognises it."""
        data = value.encode() if isinstance(value, str) else value
        while True:
            try:
                await self.js.publish(f"{self.bucket._pre}{key}", data, headers={"Nats-Msg-Id": id}, timeout=1)
                return
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.02)

    async def subscribe(self, subject: str) -> list[Msg]:
        """The messages on a subject; the list grows."""
        found: list[Msg] = []

        async def add(message: Msg) -> None:
            found.append(message)

        await self.client.subscribe(subject, cb=add)
        await self.client.flush()
        return found

    async def watch(self) -> "list[KeyValue.Entry]":
        """The entries of the bucket; the list grows."""
        found: list[KeyValue.Entry] = []
        watcher = await self.bucket.watchall(include_history=True)

        async def follow() -> None:
            while True:  # in older clients the iterator ends with the entries that were there before
                try:
                    entry = await watcher.updates(timeout=60)
                except TimeoutError:
                    continue
                if entry is not None:
                    found.append(entry)

        self.following = asyncio.create_task(follow())
        return found

    async def state(self) -> Any:
        return (await self.js.stream_info(self.stream)).state

    async def unread(self) -> int:
        """How many values no reader has acknowledged."""
        found = await self.js.consumers_info(self.stream)
        mine = [consumer for consumer in found if consumer.name.startswith("hark-")]
        return min((one.num_pending or 0) + (one.num_ack_pending or 0) for one in mine)


@asynccontextmanager
async def plain_client(url: str, bucket: str, **options: Any) -> AsyncIterator[PlainClient]:
    """Connect, and bind to the bucket as soon as it is there."""

    async def say_nothing(error: Exception) -> None:
        """The default prints a traceback for each server that goes away."""

    options = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.1, "error_cb": say_nothing, **options}
    client = await nats.connect(url, **options)
    try:
        yield PlainClient(client, await bind(client, bucket))
    finally:
        await client.close()


async def bind(client: Client, bucket: str) -> KeyValue:
    """The bucket, as soon as it is there."""
    for _ in range(1000):
        try:
            return await client.jetstream().key_value(bucket)
        except nats.js.errors.BucketNotFoundError:
            await asyncio.sleep(0.01)
    raise TimeoutError(f"There is no bucket {bucket}.")
