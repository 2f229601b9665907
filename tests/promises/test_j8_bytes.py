"""J8: bytes are data: what Python code gives as bytes comes back as bytes, and JSON shows `{"$bytes": "<base64>"}`."""

import base64
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark import Await, Child, Dag, Done, InvalidInput, Machine, PayloadTooLarge, Spawn, TaskContext, step, workflow
from hark.model import json
from hark.model.byte_values import on_the_wire
from tests.promises.support_jobs import handlers, one_task, ran
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store

DATA = b"\x00\xff feedback"
FORM = {"$bytes": base64.b64encode(DATA).decode()}


# -- the form --------------------------------------------------------------------------------------


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXT | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "$bytes", "b"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def _as_read(value: Any) -> Any:
    """What comes back: the same, and bytes for an object that is the JSON form of bytes."""
    match value:
        case {"$bytes": str() as text, **rest} if not rest:
            try:
                data = base64.b64decode(text, validate=True)
            except ValueError:
                return value
            return data if base64.b64encode(data).decode() == text else value
        case dict():
            return {key: _as_read(inner) for key, inner in value.items()}
        case list():
            return [_as_read(inner) for inner in value]
    return value


@given(_VALUES)
def test_j8_values_with_bytes_come_back_equal(value: Any) -> None:
    for dump in (json.dump, json.dump_unchecked):
        text = dump(value)
        assert json.load_for_code(text) == _as_read(value)
        assert json.dump(json.load(text)) == text, "the JSON form passes unchanged through what does not know it"
        assert json.dump(json.load_for_code(text)) == text


@pytest.mark.parametrize(
    "value", [{"$bytes": "aGk"}, {"$bytes": "no base64!"}, {"$bytes": 5}, {"$bytes": "aGk=", "b": 1}]
)
def test_j8_an_object_that_only_resembles_the_form_is_itself(value: Any) -> None:
    assert json.load_for_code(json.dump(value)) == value


def test_j8_all_kinds_of_bytes_are_written_and_a_limit_counts_what_is_written() -> None:
    for given_ in (DATA, bytearray(DATA), memoryview(DATA)):
        assert json.load_for_code(json.dump([given_])) == [DATA]
    form = len(json.dump(b"x" * 30))
    assert form == len('{"$bytes":""}') + 40
    json.dump(b"x" * 30, limit=form)
    with pytest.raises(PayloadTooLarge):
        json.dump(b"x" * 30, limit=form - 1)


def test_j8_bytes_as_keys_are_refused() -> None:
    for dump in (json.dump, json.dump_unchecked):
        with pytest.raises(InvalidInput, match="bytes as a key"):
            dump({"a": [{b"key": 1}]})


@dataclass
class Document:
    name: str
    data: bytes


def test_j8_fields_of_types_keep_their_own_base64() -> None:
    text = json.dump(Document("a", DATA))
    assert json.load(text) == {"name": "a", "data": FORM["$bytes"]}
    codec = json.Codec(Document)
    assert codec.load(codec.dump(codec.build({"name": "a", "data": DATA}))) == Document("a", DATA)
    assert codec.read(msgspec.json.encode({"name": "a", "data": FORM}), "answer") == Document("a", DATA)


def test_j8_a_program_that_knows_nothing_of_hark_sees_the_bytes_themselves() -> None:
    assert on_the_wire(json.dump(DATA)) == DATA
    assert on_the_wire('{"$bytes":"aGk"}') == b'{"$bytes":"aGk"}'
    assert on_the_wire(json.dump([DATA])) == json.dump([DATA]).encode()


# -- handlers --------------------------------------------------------------------------------------


async def test_j8_a_handler_sends_receives_keeps_and_returns_bytes(store: Store) -> None:
    async def work(task: TaskContext) -> Any:
        first = task.iteration == 0
        assert task.previous == (None if first else DATA)
        if first:
            await task.checkpoint({"history": [DATA]})
            await task.send_signal(task.run_id, "feedback", DATA)
            assert await task.run(bytes, DATA) == DATA
            assert await task.run(_annotated) == DATA
            assert await task.wait_for_signal("feedback", 60) == DATA
            return task.continue_(DATA)
        assert await task.load_checkpoint() == {"history": [DATA]}
        assert await task.wait_for_signal("feedback", 60) == [DATA, {"nested": DATA}]
        answer = await task.awakeable(title="Which?")
        assert await answer == DATA
        return task.complete({"data": DATA})

    dag = Dag("bytes", inputs={"logo": None})
    dag.loop("work", "work", max_iterations=3)
    dag.task("next", "next", after=["work"])
    dag.task("rendered", "rendered", after=["work"], input={"one": "{{ tasks.work.output.data }}"})
    async with harness(store, dag) as app:
        seen: list[Any] = []

        async def next_(task: TaskContext) -> Any:
            seen.append((task.input, task.inputs, task.outputs))
            return DATA

        async def rendered(task: TaskContext) -> Any:
            return task.input["one"] == DATA

        handlers(app, work=work, next=next_, rendered=rendered)
        job = await drained(app, app.start("bytes", {"logo": DATA}))
        await drained(app, job.signal("feedback", [DATA, {"nested": DATA}]))
        [question] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(question.id, DATA))
        assert await job.result(timeout=10) == {"work": {"data": DATA}, "next": DATA, "rendered": True}
        assert seen == [({"data": DATA}, {"logo": DATA}, {"work": {"data": DATA}})]
        shown = await app.get(job)
        assert shown.result == {"work": {"data": FORM}, "next": FORM, "rendered": True}
        assert shown.state["tasks"]["next"]["output"] == FORM
        assert (await app.awakeable(question.id)).payload == FORM


def _annotated() -> bytes:
    return DATA


async def test_j8_the_stream_shows_utf8_as_text_and_loses_no_other_bytes(store: Store) -> None:
    async def work(task: TaskContext) -> None:
        for chunk in (b"Waiting for user feedback...", DATA, {"part": DATA}, memoryview(b"caf\xc3\xa9")):
            await task.put_stream(chunk)

    async with ran(store, one_task(), work=work) as (app, job):
        chunks = [event.data["chunk"] for event in await app.events(job.id) if event.type == "stream"]
        assert chunks == ["Waiting for user feedback...", FORM, {"part": FORM}, "café"]


async def test_j8_a_gate_decides_on_bytes_and_an_expression_on_their_json_form(store: Store) -> None:
    dag = Dag("gates")
    dag.task("work", "work", gate="is-feedback")
    dag.task("other", "work", gate="{{ output['$bytes'] == '" + FORM["$bytes"] + "' }}")
    async with harness(store, dag) as app:
        handlers(app, work=lambda task: DATA)
        app.gate("is-feedback")(lambda output, inputs: output == DATA)
        job = await drained(app, app.start("gates"))
        assert await job.result(timeout=10) == {"work": DATA, "other": DATA}


# -- functions and machines ------------------------------------------------------------------------


@workflow
async def annotated(ctx: Any, data: Any) -> Any:
    received = await ctx.wait_for_signal("s")
    assert isinstance(data, bytes)
    return [data, received.payload, await ctx.run(_annotated), await ctx.run(bytes, DATA), await ctx.run(_nested)]


async def _nested() -> dict[str, Any]:
    return {"data": DATA, "at": {"deep": [DATA]}}


class Receiver(Machine):
    @step
    async def start(self, ctx: Any) -> Any:
        return Await("s", then=self.spawn)

    @step
    async def spawn(self, ctx: Any) -> Any:
        assert ctx.awaited[0].payload == {"data": DATA}
        return Spawn([Child(annotated, {"data": DATA}, correlation_key="child")], then=self.end)

    @step
    async def end(self, ctx: Any) -> Any:
        return Done(ctx.children[0].result)


async def test_j8_functions_and_machines_get_and_give_bytes(store: Store) -> None:
    async with harness(store, annotated, Receiver) as app:
        machine = await drained(app, app.start(Receiver))
        await drained(app, machine.signal("s", {"data": DATA}))
        await drained(app, app.signal("child", "s", DATA))
        assert await machine.result(timeout=10) == [DATA, DATA, DATA, DATA, {"data": DATA, "at": {"deep": [DATA]}}]
