"""J10, D4: NATS on the command line, in `hark doctor` and in the metrics."""

import asyncio
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hark import Hark, Nats
from hark.app.door_access import DoorAccess
from tests.doors.support_cli import CliResult, run_cli, run_process, store_options
from tests.nats.processes import HARK, Workers, start_worker
from tests.nats.support import Collector, until_collected, until_reader
from tests.support.http import serving
from tests.support.inspect import until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store


def nats_check(*arguments: str) -> tuple[str, str]:
    """What `hark doctor` says of NATS."""
    result = run_cli("doctor", "--json", *arguments)
    [(status, text)] = [(one["status"], one["text"]) for one in json.loads(result.out) if one["check"] == "nats"]
    assert result.code == 1 or status != "error", result
    return status, text


async def doctor(store: Store, *arguments: str) -> tuple[str, str]:
    return await asyncio.to_thread(nats_check, *arguments, *store_options(store))


async def test_d4_doctor_reports_the_server_the_bucket_and_what_is_unread(store: Store, own_server: NatsServer) -> None:
    nats = ("--nats", own_server.url)
    app = Hark(store.url, **store.options, nats=own_server.url)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        await until_reader(app)
        status, text = await doctor(store, *nats)
        assert status == "ok"
        assert text.startswith("NATS 2.")
        assert "0 unread signals in the bucket 'signals'" in text
        async with plain_client(own_server.url, "signals") as client:
            await client.put("nobody.s", "1")
            await client.put(f"{instance.id}.s", "1")
            await until_collected(store, instance, 1)
        assert f"read by process {os.getpid()} on {socket.gethostname()}" in text
        text_after = (await doctor(store, *nats))[1]
        assert re.search(r"; its last error, \d+ s ago: The key 'nobody.s' was refused", text_after), text_after
    assert await doctor(store, *nats) == (
        "warning",
        f"{text.split(',')[0]}, 0 unread signals in the bucket 'signals', and no process reads it; start a worker with "
        "the option nats, or with `--nats`",
    )
    async with plain_client(own_server.url, "signals") as client:
        await client.put(f"{instance.id}.s", "1")
    status, text = await doctor(store, *nats)
    assert (status, "1 unread signal in" in text) == ("error", True)


async def test_d4_doctor_reports_a_server_that_is_down_paused_or_without_jetstream(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hark(sqlite_store.url):
        pass
    server = NatsServer(tmp_path, jetstream=False)
    secret = server.url.replace("//", "//hark:hunter2@")
    status, text = await doctor(sqlite_store, "--nats", secret)
    assert (status, text) == (
        "error",
        f"{server.url}: connection refused. Start nats-server there, or correct the URL. Hark works without it; "
        "signals that NATS has stored are read when it is back",
    )
    monkeypatch.setenv("HARK_NATS", secret)
    with server:
        assert "JetStream is off" in (await doctor(sqlite_store))[1]
        monkeypatch.setattr("hark.engine.nats.connection._CONNECT", 0.5)
        assert "JetStream is off" in (await doctor(sqlite_store))[1], (
            "the limit is long enough for a server that answers"
        )
        server.pause()
        status, text = await doctor(sqlite_store)
        assert (status, "no answer within 0.5 s" in text) == ("error", True), text
        assert "hunter2" not in text


@pytest.mark.parametrize(
    ("way", "url", "part"),
    [
        ("--nats", "", "it is empty"),
        ("--nats", "http://h", "the scheme"),
        ("--nats", "a,", "an item of the list"),
        ("HARK_NATS", "nats://h:0", "the port"),
    ],
)
def test_d4_doctor_reports_a_malformed_url_and_goes_on_with_the_other_checks(
    sqlite_store: Store, way: str, url: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli("migrate", *store_options(sqlite_store)).code == 0
    if way == "HARK_NATS":
        monkeypatch.setenv(way, url)
    result = run_cli("doctor", "--json", *store_options(sqlite_store), *([way, url] if way == "--nats" else []))
    checks = {check["check"]: check for check in json.loads(result.out)}
    assert result.code == 1
    assert checks["nats"]["status"] == "error"
    assert checks["nats"]["text"].startswith(f"{way}: The NATS URL is malformed: {part}")
    assert (checks["store"]["status"], checks["secret"]["status"]) == ("ok", "ok")


async def test_d4_doctor_says_that_the_reader_does_not_answer(
    sqlite_store: Store, own_server: NatsServer, tmp_path: Path
) -> None:
    with Workers(sqlite_store, own_server, tmp_path) as workers:
        worker = workers.start()
        await worker.until_reads()
        worker.process.send_signal(signal.SIGSTOP)
        status, text = await doctor(sqlite_store, "--nats", own_server.url)
    assert (status, "the process that reads it does not answer" in text) == ("error", True), text
    assert "commit" not in text


async def test_d4_an_error_of_the_connection_is_forgotten_when_it_works_again(
    sqlite_store: Store, tmp_path: Path
) -> None:
    server = NatsServer(tmp_path)
    app = Hark(sqlite_store.url, nats=server.url)
    counters = app._clerk.counters.nats
    assert counters is not None
    async with app:
        await until(lambda: counters.last_error, "the error", 30)
        with server:
            await until_reader(app)
            status, text = await doctor(sqlite_store, "--nats", server.url)
            assert (status, "last error" in text) == ("ok", False), text


def test_d4_doctor_says_nothing_of_nats_if_it_is_not_used(sqlite_store: Store) -> None:
    assert run_cli("migrate", *store_options(sqlite_store)).code == 0
    checks = json.loads(run_cli("doctor", "--json", *store_options(sqlite_store)).out)
    assert "nats" not in [check["check"] for check in checks]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["worker", "serve"])
async def test_j10_worker_and_serve_take_the_server_from_an_option_or_the_environment(
    sqlite_store: Store, own_server: NatsServer, tmp_path: Path, verb: str
) -> None:
    """Both override the app's own, which is a server that does not exist."""
    nowhere = NatsServer(tmp_path)
    app = Hark(sqlite_store.url)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        for n, (arguments, environment) in enumerate(
            [(("--nats", own_server.url), {}), ((), {"HARK_NATS": own_server.url})]
        ):
            arguments = (*arguments, *(("--port", "0") if verb == "serve" else ()))
            with Workers(sqlite_store, nowhere, tmp_path, **environment) as workers:
                worker = workers.start(*arguments, verb=verb)
                await worker.until_reads()
                async with plain_client(own_server.url, "signals") as client:
                    await client.put(f"{instance.id}.s", str(n))
                    assert await until_collected(sqlite_store, instance, n + 1) == list(range(n + 1))


JOB = """
name: greeting
tasks:
  - name: greet
    run: echo hello
"""


async def test_j10_a_command_that_makes_one_call_does_not_connect(
    sqlite_store: Store, own_server: NatsServer, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)

    def run(*words: str) -> CliResult:
        return run_process(*words, *store_options(sqlite_store), env={"HARK_NATS": own_server.url})

    done = await asyncio.to_thread(run, "job", "run", str(file), "--detach")
    assert done.code == 0, done
    assert (await asyncio.to_thread(run, "signal", done.out.strip(), "s")).code == 0
    assert "Client connection created" not in own_server.log_file.read_text()
    assert not (tmp_path / "jetstream" / "jetstream" / "$G").exists(), "no bucket was created"
    assert (await asyncio.to_thread(run, "job", "run", str(file))).code == 0
    async with plain_client(own_server.url, "signals"):
        pass  # the worker of `job run` has created it


async def test_x6_what_happens_on_nats_is_in_the_metrics(
    sqlite_store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = Hark(sqlite_store.url, nats=Nats(nats_server.url, bucket=bucket))
    app.register(Collector)

    async def figures() -> dict[str, float]:
        return {
            family.name + "".join(f" {value}" for value in labels.values()): number
            for family in await DoorAccess(app).metrics()
            for labels, number in family.samples
            if "nats" in family.name
        }

    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await until_reader(app)
        await client.put(f"{instance.id}.s", "1")
        await client.put("nobody.s", "1")
        await app.signal(instance, "s", 2)
        await until_collected(sqlite_store, instance, 2)

        async def counted() -> bool:
            return await figures() == {
                "hark_nats_connected": 1,
                "hark_nats_connects_total": 1,
                "hark_nats_denied_total": 0,
                "hark_nats_reader": 1,
                "hark_nats_received_total delivered": 1,
                "hark_nats_received_total duplicate": 0,
                "hark_nats_received_total refused": 1,
                "hark_nats_sent_total chunk": 0,
                "hark_nats_sent_total dropped": 0,
                "hark_nats_sent_total signal": 1,
            }

        await until(counted, "the figures", 30)
    assert (await asyncio.to_thread(lambda: Hark("sqlite://")._clerk.counters.nats)) is None


async def test_x6_the_metrics_of_nats_are_numbers_in_the_text_format(
    sqlite_store: Store, nats_server: NatsServer, bucket: str
) -> None:
    """`True` is not a number there: Prometheus would drop all metrics of the process."""
    app = Hark(sqlite_store.url, nats=Nats(nats_server.url, bucket=bucket))
    async with app:
        await until_reader(app)
        async with serving(app) as http:
            lines = (await http.get("/metrics")).text.splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert samples["hark_nats_connected"] == samples["hark_nats_reader"] == "1"
    for name, value in samples.items():
        assert math.isfinite(float(value)), name


async def test_j10_processes_wake_each_other_over_nats(pg_store: Store, nats_server: NatsServer, bucket: str) -> None:
    nats = Nats(nats_server.url, bucket=bucket, wake_ups=True)
    caller, working = (Hark(pg_store.url, **pg_store.options, nats=nats) for _ in range(2))
    for app in (caller, working):
        app.register(Collector)
    hinted: dict[str, set[str]] = {"caller": set(), "working": set()}

    def note_hints(name: str, app: Hark) -> None:
        hint = app._clerk.hint

        def noted() -> None:
            hinted[name].add(threading.current_thread().name)
            hint()

        app._clerk.hint = noted  # type: ignore[method-assign]

    note_hints("caller", caller)
    note_hints("working", working)
    async with caller, working, working.worker():
        counters = [app._clerk.counters.nats for app in (caller, working)]
        await until(lambda: all(one is not None and one.is_connected for one in counters), "both to be connected", 30)
        instance = await caller.start(Collector)
        await until(lambda: "hark-nats" in hinted["working"], "a wake-up for the start", 30)
        await instance.signal("never")
        await instance.result(timeout=30)
        await until(lambda: "hark-nats" in hinted["caller"], "a wake-up for the end", 30)


def test_j10_without_the_option_the_nats_client_is_not_imported() -> None:
    code = (
        "import asyncio, sys\nfrom hark import Hark\n"
        "async def main():\n    async with Hark('sqlite://') as app, app.worker():\n        pass\n"
        "asyncio.run(main())\nprint([name for name in sys.modules if name.partition('.')[0] == 'nats'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
async def test_j10_the_log_of_a_worker_says_what_the_connection_does(sqlite_store: Store, tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    command = [*HARK, "worker", *store_options(sqlite_store), "--nats", server.url.replace("//", "//hark:hunter2@")]
    worker = start_worker(command, tmp_path / "worker.log")
    try:
        await worker.until_logged("cannot be used")
        said = worker.log.count("cannot be used")
        with server:
            await worker.until_logged("Connected to NATS")
            await worker.until_reads()
        await until(lambda: worker.log.count("cannot be used") > said, "the log to say that the server is gone", 60)
    finally:
        worker.process.kill()
        worker.process.wait(30)
    assert "hunter2" not in worker.log
