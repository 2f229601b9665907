"""Find instances by tags, key, time and everything else, newest first, page by page.

What a list must contain is computed here from all instances, one by one. Which index a page is read by depends on how
many rows each filter has, so the same questions are asked with other limits: then few instances count as many.
"""

import itertools
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from hark import Context, Done, InvalidInput, Machine, Start, Stop, step, workflow
from hark.model.values import Instance
from hark.testing import Harness
from hark.views import listing
from tests.support.harness import drained
from tests.support.inspect import name_of
from tests.support.stores import Store

CENTURY = timedelta(days=36525)


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("no") if ctx.state.get("fail") else Done()


class Other(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


@workflow
async def function(ctx: object) -> None: ...


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Quick, Other, function, url=store.url, **store.options) as app:
        yield app


async def pages(app: Harness, limit: int, **filters: Any) -> list[str]:
    """The ids of all pages, one after the other."""
    seen: list[str] = []
    while page := await app.list(limit=limit, after=seen[-1] if seen else None, **filters):
        assert len(page) <= limit
        seen += [instance.id for instance in page]
    return seen


# -- order -----------------------------------------------------------------------------------------


async def test_of_one_commit_the_instance_started_last_is_the_newest(app: Harness) -> None:
    """Also if the ids say otherwise, and if a later commit has the same time."""
    chosen = [f"{n * 7 % 10}" for n in range(10)]
    await app.start_many([Start(Quick, id=id, tags={"x": "y"}, correlation_key=f"key {id}") for id in chosen[:6]])
    await app.start_many([Start(Other, id=id, tags={"x": "y"}, correlation_key=f"key {id}") for id in chosen[6:]])
    newest_first = chosen[::-1]
    for limit in (1, 4, 100):
        assert await pages(app, limit) == newest_first
        assert await pages(app, limit, tags={"x": "y"}) == newest_first
        assert await pages(app, limit, key_prefix="key") == newest_first


async def test_a_clock_that_is_set_back_loses_no_instance(app: Harness) -> None:
    """The list is in the order of `created_at`, whatever the clock did, and a page continues the one before."""
    for n in range(9):
        app.clock.now += (-1, 0, 1)[n % 3] * 1_000_000
        await app.start(Quick, id=f"{n}", tags={"x": "y"})
    everything = await app.list()
    assert [i.created_at for i in everything] == sorted((i.created_at for i in everything), reverse=True)
    for filters in ({}, {"tags": {"x": "y"}}):
        assert await pages(app, 2, **filters) == [instance.id for instance in everything]
        assert len(everything) == 9


# -- filters ---------------------------------------------------------------------------------------

KEYS = [None, "order:1", "order:2", "order:20", "orderly", "ORDER:1", "order%", "order_", "\\", "ä", "äö", "日本", "日"]
TAGS: list[dict[str, str] | None] = [None, {"t": "a"}, {"t": "a", "u": "b"}, {"t": "b", "u": "b"}, {"u": "B"}]


@pytest.fixture(params=[(1000, 10_000), (3, 5), (1, 40)], ids=["few", "many", "window"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many instances are few, and how many of the newest are tried."""
    few, window = request.param
    monkeypatch.setattr(listing, "_FEW", few)
    monkeypatch.setattr(listing, "_WINDOW", window)


async def crowd(app: Harness) -> list[Instance]:
    """Instances of all kinds in a few commits, and all of them, newest first."""
    chance = random.Random(8)
    keys = itertools.count()
    for _ in range(6):
        starts = []
        for _ in range(10):
            key = chance.choice(KEYS)
            number = next(keys)
            definition = chance.choice([Quick, Quick, Other, function])
            input = {"fail": chance.random() < 0.3} if definition is Quick else None
            starts.append(
                Start(
                    definition, input, tags=chance.choice(TAGS), correlation_key=key and f"{key}{number}",
                    delay=chance.choice([None, 3600]),
                )
            )  # fmt: skip
        await drained(app, app.start_many(starts))
        await app.advance(chance.choice([0, 60]))
    everything = await app.list(limit=1000)
    assert len(everything) > 50
    return everything


def matches(instance: Instance, status: Any, definition: Any, kind: Any, tags: Any, prefix: Any, between: Any) -> bool:
    after, before = between
    return (
        status in (None, instance.status)
        and definition in (None, instance.definition)
        and kind in (None, instance.kind)
        and (tags or {}).items() <= instance.tags.items()
        and (prefix is None or (instance.correlation_key or "").startswith(prefix))
        and (after is None or instance.created_at > after)
        and (before is None or instance.created_at < before)
    )


@pytest.mark.usefixtures("sizes")
async def test_a_list_has_what_matches_all_filters_newest_first_and_pages_show_each_once(app: Harness) -> None:
    everything = await crowd(app)
    middle = everything[len(everything) // 2].created_at
    questions = itertools.product(
        [None, "failed", "runnable"],
        [None, "Quick"],
        [None, "workflow"],
        [None, {"t": "a"}, {"u": "b"}, {"t": "a", "u": "b"}, {"t": "a", "u": "x"}, {"T": "a"}],
        [None, "o", "order:", "日"],
        [(None, None), (middle, None), (None, middle), (middle, middle + CENTURY)],
    )
    chosen = random.Random(5).sample(list(questions), 150)
    for status, definition, kind, tags, prefix, between in chosen:
        expected = [i.id for i in everything if matches(i, status, definition, kind, tags, prefix, between)]
        filters: dict[str, Any] = {
            "status": status, "definition": definition, "kind": kind, "tags": tags, "key_prefix": prefix,
            "created_after": between[0], "created_before": between[1],
        }  # fmt: skip
        assert await pages(app, 7 if len(expected) > 7 else 1000, **filters) == expected, filters


PREFIXES = [
    "o", "order", "order:", "order:2", "order%", "order_", "%", "_", "\\", "ä", "äö", "日", "日本", "\ud7ff",
    "\U0010ffff", "x\U0010ffff", "\U0010ffff" * 63, "z" * 255,
]  # fmt: skip


@pytest.mark.usefixtures("sizes")
async def test_a_prefix_finds_exactly_the_keys_that_begin_with_it(app: Harness) -> None:
    keys = {*filter(None, KEYS), "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "\U0010ffff\U0010ffffx", "x\U0010ffffy"}
    keys |= {"\U0010ffff" * 63, "\U0010ffff" * 63 + "zzz", "z" * 255, "\x01", "x", "y"}
    await app.start_many([Start(Quick, correlation_key=key) for key in sorted(keys)])
    await app.start(Quick)  # without a key
    for prefix in PREFIXES:
        found = await app.list(key_prefix=prefix)
        assert {instance.correlation_key for instance in found} == {key for key in keys if key.startswith(prefix)}
        assert [instance.id for instance in found] == sorted((instance.id for instance in found), reverse=True)


async def test_a_prefix_finds_instances_that_ended_and_later_holders_of_the_same_key(app: Harness) -> None:
    first = await drained(app, app.start(Quick, correlation_key="order:1"))
    second = await app.start(Quick, correlation_key="order:1")
    assert [instance.id for instance in await app.list(key_prefix="order:1")] == [second.id, first.id]


async def test_the_times_of_a_range_are_not_in_it(app: Harness) -> None:
    times = []
    for n in range(3):
        await app.start(Quick, id=f"{n}")
        times.append((await app.get(f"{n}")).created_at)
        await app.advance(1)
    assert await pages(app, 10, created_after=times[0]) == ["2", "1"]
    assert await pages(app, 10, created_before=times[2]) == ["1", "0"]
    assert await pages(app, 10, created_after=times[0], created_before=times[2]) == ["1"]
    assert await pages(app, 10, created_after=times[2]) == []
    assert await pages(app, 10, created_after=times[2], created_before=times[0]) == []
    assert await pages(app, 1, created_after=times[0] - CENTURY, created_before=times[0] + CENTURY) == ["2", "1", "0"]
    early, late = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert await pages(app, 10, created_after=early, created_before=late) == ["2", "1", "0"]
    in_another_zone = times[0].astimezone(timezone(timedelta(hours=5)))
    assert await pages(app, 10, created_after=in_another_zone) == ["2", "1"]


async def test_x4_a_malformed_filter_is_refused(app: Harness) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"created_after": datetime(2026, 1, 1)}, "no time zone"),
        ({"created_before": datetime(2026, 1, 1)}, "no time zone"),
        ({"created_after": "2026-01-01T00:00:00Z"}, "must be a datetime"),
        ({"created_before": 1}, "must be a datetime"),
        ({"key_prefix": ""}, "key_prefix is empty"),
        ({"key_prefix": 7}, "key_prefix must be text"),
        ({"key_prefix": "x" * 256}, "256 bytes"),
    ]
    for filters, says in wrong:
        with pytest.raises(InvalidInput, match=says):
            await app.list(**filters)


async def test_an_instance_started_between_two_filtered_pages_is_not_in_the_later_page(app: Harness) -> None:
    for n in range(4):
        await app.start(Quick, id=f"{n}", tags={"x": "y"}, correlation_key=f"k{n}")
        await app.advance(1)
    for n, filters in enumerate(({"tags": {"x": "y"}}, {"key_prefix": "k"})):
        first = [instance.id for instance in await app.list(limit=2, **filters)]  # type: ignore[arg-type]
        await app.start(Quick, id=f"late{n}", tags={"x": "y"}, correlation_key=f"k-late{n}")
        rest = await app.list(limit=9, after=first[-1], **filters)  # type: ignore[arg-type]
        assert not {instance.id for instance in rest} & {"late0", "late1"}
        assert len(rest) == 2 + n


def test_the_end_of_a_prefix_is_the_next_text_behind_all_that_have_it() -> None:
    def behind(prefix: str) -> str | None:
        return listing.prefix_range(prefix)[1]

    assert behind("a") == "b"
    assert behind("az\U0010ffff\U0010ffff") == "a{"
    assert behind("\ud7ff") == "\ue000"
    end = behind("\U0010ffff")
    assert end is not None
    assert end.encode() > ("\U0010ffff" * 63 + "\uffff").encode()


async def test_a_page_of_many_instances_takes_as_many_reads_as_a_page_of_few(
    app: Harness, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    kind: Any = type(store.make())
    read = kind.read

    async def noted(self: Any, sql: Any, *args: Any, **values: Any) -> Any:
        if name_of(sql) != "news":  # read beside the list, after the hint of a start
            sent.append(name_of(sql))
        return await read(self, sql, *args, **values)

    monkeypatch.setattr(kind, "read", noted)
    tags = {"x": "y", "z": "z"}
    reads: dict[int, list[list[str]]] = {}
    for n in (2, 200):
        await app.start_many([Start(Quick, tags=tags, correlation_key=f"k{n}-{m}") for m in range(n)])
        for filters in ({}, {"tags": tags}, {"key_prefix": "k"}, {"tags": {"x": "y"}, "status": "runnable"}):
            sent.clear()
            assert len(await app.list(limit=1000, **filters)) >= n  # type: ignore[arg-type]
            reads.setdefault(n, []).append([*sent])
    assert reads[2] == reads[200]
    assert all(len(statements) <= 6 for statements in reads[2])
