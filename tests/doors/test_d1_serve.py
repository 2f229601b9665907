"""D1: `serve` runs the API and a worker in one process, and finishes requests that have begun before it stops."""

import asyncio

from tests.support.http import Order, app_on, ask, serving
from tests.support.inspect import until
from tests.support.stores import Store


async def test_d1_the_worker_runs_in_the_same_process_unless_worker_is_false(store: Store) -> None:
    async with serving(app_on(store), worker=False) as http:
        await http.post("/instances", json={"definition": "Order", "id": "o-1"})
        assert (await http.get("/instances/o-1")).json()["status"] == "runnable"
    async with serving(app_on(store)) as http:

        async def parked() -> bool:
            return bool((await http.get("/instances/o-1")).json()["status"] == "awaiting_signal")

        await until(parked, "the worker to run it")


async def test_d1_an_app_that_was_open_stays_open(store: Store) -> None:
    app = app_on(store)
    async with app:
        async with serving(app) as http:
            assert (await http.get("/health")).status_code == 200
        assert app.is_open
        await app.start(Order)
    app = app_on(store)
    async with serving(app):
        assert app.is_open
    assert not app.is_open


async def test_d1_a_request_that_has_begun_gets_its_response_while_the_server_stops(store: Store) -> None:
    app = app_on(store)
    async with app:
        await ask(store, "prom_1")
        line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = asyncio.ensure_future(app.serve(port=0, worker=False, say=line.set_result))
        port = int((await line).split()[2].rstrip(";").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = "POST /awakeables/prom_1/resolve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n"
        writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")  # the handler reads its body
        writer.write(b'{"ok"')
        server.cancel()
        await until(lambda: _refused(port), "the server to accept no more connections")
        writer.write(b': "yes!"}')
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await asyncio.wait({server}, timeout=30)
        assert server.done()
        assert (await app.awakeable("prom_1")).payload == {"ok": "yes!"}


async def _refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    return False
