"""J10: one process reads, whatever other programs do on the subject of the election."""

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

from hark import Hark, Nats
from hark.engine.nats import election, reader
from hark.engine.nats.bucket import SignalBucket
from hark.engine.nats.connection import connected
from hark.engine.nats.election import ReaderState, ask_reader
from hark.engine.nats.report import read_report
from tests.nats.support import Collector, received, until_collected, until_reader
from tests.support.inspect import until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store


async def test_j10_a_stream_that_answers_on_every_subject_is_not_taken_for_a_reader(
    sqlite_store: Store, own_server: NatsServer
) -> None:
    client = await nats.connect(own_server.url)
    await client.jetstream().add_stream(name="archive", subjects=["hark.>"])
    first, second = (Hark(sqlite_store.url, nats=own_server.url) for _ in range(2))
    first.register(Collector)
    async with first:
        instance = await first.start(Collector)
        await until_reader(first)
        async with connected(Nats(own_server.url)) as connection:
            state = await ask_reader(connection, "signals")
            assert state is not None
            assert not state.is_stuck
        async with second, plain_client(own_server.url, "signals") as plain:
            await plain.put(f"{instance.id}.s", "1")
            assert await until_collected(sqlite_store, instance, 1) == [1]
            assert received(second) == {}
    await client.close()


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"{broken", b'{"stream": "archive", "seq": 1}', b"\xff"])
async def test_j10_an_answer_of_another_program_is_ignored(nats_server: NatsServer, bucket: str, answer: bytes) -> None:
    client = await nats.connect(nats_server.url)
    reading = await nats.connect(nats_server.url)

    async def other(question: Msg) -> None:
        await client.publish(question.reply, answer)
        await client.flush()
        await reading.publish(question.reply, b'{"is_stuck": true, "last_error": "gone"}')

    await client.subscribe(election.reader_subject(bucket), cb=other)
    await client.flush()
    async with connected(Nats(nats_server.url)) as connection:
        assert await ask_reader(connection, bucket) == ReaderState(is_stuck=True, last_error="gone")
    await client.close()
    await reading.close()


async def test_j10_a_program_that_listens_to_everything_does_not_delay_the_reader(
    sqlite_store: Store, own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS then never says that there is no reader; that no process waits for values says it too. The request of a
    process that has ended counts until it expires, because the program receives what is sent to it."""
    monkeypatch.setattr(reader, "_EXPIRES", 0.5)
    monkeypatch.setattr(reader, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(election, "_ASK", 0.3)
    monkeypatch.setattr(election, "_MOST_UNANSWERED", 1000)
    client = await nats.connect(own_server.url)

    async def see(message: Msg) -> None:
        """As `nats sub '>'`."""

    await client.subscribe(">", cb=see)
    await client.flush()

    async def is_not_read() -> bool:
        report = await read_report(Nats(own_server.url))
        assert report.problem is None
        return not report.is_read and not report.is_stuck

    for _ in range(2):  # the second time there is a consumer, whose process has ended
        app = Hark(sqlite_store.url, nats=own_server.url)
        async with app:
            await until_reader(app)
        await until(is_not_read, "the report to say that no process reads", 30)
    await client.close()


async def test_j10_a_reader_that_waits_for_values_and_does_not_answer_is_not_taken_for_none(
    nats_server: NatsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "_ASK", 0.3)
    async with connected(Nats(nats_server.url)) as connection, connected(Nats(nats_server.url)) as paused:

        async def keep_silent(question: Msg) -> None:
            """As a process that is paused."""

        mine = SignalBucket(paused, bucket)
        term = await election.take_over(mine)
        assert term is not None
        await paused.subscribe(election.reader_subject(bucket), keep_silent)
        await paused.subscribe("inbox", keep_silent)
        question = f"$JS.API.CONSUMER.MSG.NEXT.{mine.stream}.{term.consumer}"
        await paused.publish(question, b'{"batch": 1, "expires": 30000000000}', reply="inbox")
        await paused.flush()
        with pytest.raises(nats.errors.TimeoutError):
            await ask_reader(connection, bucket)
    async with connected(Nats(nats_server.url)) as connection:
        assert await ask_reader(connection, bucket) is None, "the process has ended"


async def test_j10_a_reader_asks_for_fewer_values_after_one_that_did_not_acknowledge_them(
    nats_server: NatsServer, bucket: str
) -> None:
    """So that a value that ends the connection is soon the first, which is looked at."""
    async with connected(Nats(nats_server.url)) as connection:
        mine = SignalBucket(connection, bucket)
        await mine.ensure()
        async with plain_client(nats_server.url, bucket) as client:
            for n in range(350):
                await client.put("run.s", str(n))
            batches, asked = [], 300
            for _ in range(4):
                term = await election.take_over(mine)
                assert term is not None
                batches.append((term.before.up_to, term.before.batch))
                fetching = await client.js.pull_subscribe_bind(term.consumer, client.stream)
                values = await fetching.fetch(asked)
                asked = len(values) // 10 or 1
                await fetching.unsubscribe()
            assert batches == [(0, 1), (300, 30), (30, 3), (3, 1)]
            await values[0].ack_sync()
            term = await election.take_over(mine)
            assert term is not None
            assert term.before == (1, 1, ()), "all that was sent is acknowledged"
