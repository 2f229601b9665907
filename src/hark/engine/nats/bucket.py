"""SignalBucket: the stream behind the KV bucket of signals, and the consumers that Hark reads it with.

A KV bucket keeps at most 64 values of a key, and one by default: of two quick puts, the first would be gone before it
is read. So the stream has a limit per key that is never reached. It has a limit, because clients refuse to bind to a
bucket without one. A full stream refuses a new value and keeps those that are not read (`discard`). Nothing expires:
cleaning.py removes what was read.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

import msgspec
import nats.errors
from msgspec import Struct

from hark.engine.nats.connection import ApiError, Connection, NotAllowed

VALUES_PER_KEY: Final = 2**31 - 1  # the largest number that clients with 32 bits can read
MOST_UNACKNOWLEDGED: Final = 1000
_NOT_FOUND: Final = 404
_INFO: Final = 2.0  # seconds; a request that the user is not allowed to make is not answered
_ACK_WAIT: Final = 86_400_000_000_000  # ns: a value is not sent again, a new reader begins with its own consumer
_CONSUMER: Final = re.compile(r"hark-(\d+)-[0-9a-f]+")


class BadBucket(Exception):
    """The bucket exists, and signals would be lost in it; the text says what to do."""


class Stream(Struct, frozen=True):
    """The state of the stream. `created` tells it from one of the same name that was deleted or wiped."""

    created: str
    first: int  # sequence of the first value; above `last` if there is none
    last: int
    size: int  # bytes
    most: int  # bytes; -1: no limit of its own
    values: int
    most_values: int  # -1: no limit
    storage: str  # "file" or "memory"
    replicas: int

    @property
    def is_half_full(self) -> bool:
        """Return True if the stream has reached half of one of its own limits."""
        return _is_above(self.size, self.most, 0.5) or _is_above(self.values, self.most_values, 0.5)


class AccountStorage(Struct, frozen=True):
    """The bytes that JetStream stores for the account, and the bytes it may store; -1: no limit."""

    used: int
    most: int

    @property
    def is_almost_reached(self) -> bool:
        return _is_above(self.used, self.most, 0.75)


def _is_above(number: int, most: int, part: float) -> bool:
    return most > 0 and number > part * most


class Consumer(Struct, frozen=True, order=True):
    """A consumer of Hark. A higher number was made later; of two equal ones, the higher name counts as later."""

    number: int
    name: str
    floor: int  # everything up to this sequence is committed to SQL
    unread: int  # values that are not acknowledged
    waiting: int  # requests for values that wait at the server
    sent: int  # up to which sequence values were sent to its process


class StoredValue(Struct, frozen=True):
    """A value as the API shows it."""

    sequence: int
    key: str
    time: str  # when it was put, as JetStream writes it

    @property
    def is_readable(self) -> bool:
        """Return False if the key is not UTF-8: the API shows another character for such bytes, and the NATS client
        ends the connection when it receives them."""
        return "\N{REPLACEMENT CHARACTER}" not in self.key


class SignalBucket:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.stream = f"KV_{name}"
        self.prefix = f"$KV.{name}."

    async def state(self) -> Stream | None:
        """The present state of the stream; None if there is none."""
        found = await self._info()
        return None if found is None else _stream(found)

    async def ensure(self) -> Stream:
        """Create the stream, or change the settings with which it would lose signals.

        Raises:
            BadBucket: It cannot be changed.
        """
        found = await self._info()
        if found is None:
            try:
                return _stream(await self._connection.ask(f"STREAM.CREATE.{self.stream}", self._config()))
            except ApiError as error:
                if (found := await self._info()) is None:  # another process may have created it meanwhile
                    raise BadBucket(
                        f"the bucket {self.name!r} cannot be created: {error}. Allow it to this user, or create the "
                        f"stream {self.stream} yourself, see docs/nats.md"
                    ) from error
        return await self._repair(found)

    async def problems(self) -> list[str]:
        """The settings with which the bucket would lose signals, in words."""
        found = await self._info()
        return [] if found is None else list(_wrong(found["config"]))

    async def _repair(self, found: dict[str, Any]) -> Stream:
        config = found["config"]
        wrong = _wrong(config)
        if wrong:
            settings = {name: value for setting in wrong.values() for name, value in setting.items()}
            try:
                found = await self._connection.ask(f"STREAM.UPDATE.{self.stream}", config | settings)
            except ApiError as error:
                raise BadBucket(
                    f"the bucket {self.name!r} {' and '.join(wrong)}, so signals would be lost, and it cannot be "
                    f"changed: {error}. Delete it when nothing in it is needed any more, and Hark creates it again; or "
                    "give another bucket, Nats(bucket=…)"
                ) from error
        return _stream(found)

    async def _info(self) -> dict[str, Any] | None:
        return await self._find(f"STREAM.INFO.{self.stream}")

    async def _find(self, api: str, question: Any = None) -> dict[str, Any] | None:
        """Ask the JetStream API about something; None if it is not there."""
        try:
            return await self._connection.ask(api, question)
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def _config(self) -> dict[str, Any]:
        """The settings that clients expect of a bucket, with every value kept."""
        return {
            "name": self.stream,
            "description": "Signals of Hark",
            "subjects": [f"{self.prefix}>"],
            "max_msgs_per_subject": VALUES_PER_KEY,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "storage": "file",
            "num_replicas": 1,
            "max_age": 0,
        }

    # -- consumers --------------------------------------------------------------------------------

    async def consumers(self) -> list[Consumer]:
        """The consumers of Hark, the latest last. Others are of clients that watch the bucket."""
        found: list[Consumer] = []
        offset = 0
        while True:
            page = await self._connection.ask(f"CONSUMER.LIST.{self.stream}", {"offset": offset})
            rows = page.get("consumers") or []
            found += [consumer for row in rows if (consumer := _consumer(row)) is not None]
            offset += len(rows)
            if not rows or offset >= page["total"]:
                return sorted(found)

    async def is_waited_for(self) -> bool:
        """Return True if a process waits for values. A reader does, except while it commits. The request of a process
        that has ended still counts until it expires, if a program subscribes to everything."""
        return any(consumer.waiting for consumer in await self.consumers())

    async def has_consumer(self, name: str) -> bool:
        """Return True if a consumer is still there. A process that takes over deletes the consumers of the others."""
        return await self._find(f"CONSUMER.INFO.{self.stream}.{name}") is not None

    async def floor(self, name: str) -> int:
        """The sequence up to which this consumer has acknowledged everything."""
        found = await self._connection.ask(f"CONSUMER.INFO.{self.stream}.{name}")
        return int(found["ack_floor"]["stream_seq"])

    async def add_consumer(self, number: int, start: int | None) -> str:
        """Add a durable consumer that begins with this sequence; None: with the first value. Return its name."""
        name = f"hark-{number}-{secrets.token_hex(4)}"
        from_start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        config = {
            "name": name,
            "durable_name": name,
            "ack_policy": "all",
            "ack_wait": _ACK_WAIT,
            "max_ack_pending": MOST_UNACKNOWLEDGED,
            "replay_policy": "instant",
            **({"deliver_policy": "all"} if start is None else from_start),
        }
        question = {"stream_name": self.stream, "config": config}
        await self._connection.ask(f"CONSUMER.DURABLE.CREATE.{self.stream}.{name}", question)
        return name

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer, if it is still there."""
        await self._find(f"CONSUMER.DELETE.{self.stream}.{name}")

    # -- values -----------------------------------------------------------------------------------

    async def first_from(self, sequence: int) -> StoredValue | None:
        """The first value from this sequence on; None at the end."""
        question = {"seq": sequence, "next_by_subj": f"{self.prefix}>"}
        if (found := await self._find(f"STREAM.MSG.GET.{self.stream}", question)) is None:
            return None
        value = found["message"]
        return StoredValue(value["seq"], value["subject"].removeprefix(self.prefix), value["time"])

    async def limits(self, stream: Stream) -> AccountStorage | None:
        """The limits of the account for a stream of this kind; None if this user may not ask for them."""
        try:
            answer = await self._connection.request("$JS.API.INFO", timeout=_INFO)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError, NotAllowed):
            return None
        found = msgspec.json.decode(answer.data)
        account = (found.get("tiers") or {}).get(f"R{stream.replicas}", found)
        kind = "memory" if stream.storage == "memory" else "storage"
        if kind not in account or "limits" not in account:
            return None
        return AccountStorage(account[kind], account["limits"].get(f"max_{kind}", -1))

    async def purge_before(self, sequence: int) -> int:
        """Remove all values below this sequence. Return their number."""
        return int((await self._connection.ask(f"STREAM.PURGE.{self.stream}", {"seq": sequence}))["purged"])


def _stream(found: dict[str, Any]) -> Stream:
    state, config = found["state"], found["config"]
    return Stream(
        created=found["created"],
        first=state["first_seq"],
        last=state["last_seq"],
        size=state["bytes"],
        most=config.get("max_bytes", -1),
        values=state["messages"],
        most_values=config.get("max_msgs", -1),
        storage=config.get("storage", "file"),
        replicas=config.get("num_replicas", 1),
    )


def _consumer(found: dict[str, Any]) -> Consumer | None:
    match = _CONSUMER.fullmatch(found["name"])
    if match is None:
        return None
    unread = found["num_pending"] + found["num_ack_pending"]
    return Consumer(
        number=int(match[1]),
        name=found["name"],
        floor=found["ack_floor"]["stream_seq"],
        unread=unread,
        waiting=found.get("num_waiting", 0),
        sent=found["delivered"]["stream_seq"],
    )


def _wrong(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings with which signals would be lost: what they mean, and what they should be."""
    wrong: dict[str, dict[str, Any]] = {}
    per_key = config.get("max_msgs_per_subject", -1)
    if per_key != VALUES_PER_KEY:
        meaning = (
            f"keeps only {per_key} values of a key" if per_key > 0 else "has no limit per key, which clients refuse"
        )
        wrong[meaning] = {"max_msgs_per_subject": VALUES_PER_KEY}
    if config.get("discard") != "new":
        wrong["removes old values when it is full"] = {"discard": "new"}
    if config.get("max_age"):
        wrong["removes values by their age"] = {"max_age": 0}
    if config.get("retention", "limits") != "limits":
        wrong[f"has the retention {config['retention']!r}"] = {"retention": "limits"}
    return wrong
