"""Another process for `bench.nats_work`: sends signals when it is told to, over NATS or over the store.

`python -m bench.nats_sender {put,signal} SERVER` reads lines `RUN COUNT` and answers each with the time at which it
began to send, by the clock that all processes of a machine share.
"""

import asyncio
import sys
import time

import nats

from hark import Hark


async def lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def put(server: str) -> None:
    client = await nats.connect(server)
    bucket = await client.jetstream().key_value("signals")
    async for line in await lines():
        run, count = line.decode().split()
        began = time.monotonic()
        if count == "1":
            await bucket.put(f"{run}.go", b"0")
        else:
            for n in range(int(count)):
                await client.publish(f"$KV.signals.{run}.go", str(n).encode())
            await client.flush()
        print(began, flush=True)
    await client.close()


async def signal(url: str) -> None:
    async with Hark(url) as app:
        async for line in await lines():
            run, count = line.decode().split()
            began = time.monotonic()
            for reply in [app.signal(run, "go", n) for n in range(int(count))]:
                await reply
            print(began, flush=True)


if __name__ == "__main__":
    asyncio.run({"put": put, "signal": signal}[sys.argv[1]](sys.argv[2]))
