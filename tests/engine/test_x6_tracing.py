"""X6: one trace from the caller's span through start, steps, runs, waits and answers; nothing without a provider."""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hark import (
    Await,
    Context,
    Done,
    Duplicate,
    FunctionContext,
    Hark,
    InstanceFailed,
    Machine,
    Next,
    RetryPolicy,
    RunFailed,
    step,
    workflow,
)
from tests.support.http import serving
from tests.support.inspect import until
from tests.support.stores import Store


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A tracer provider of this test, in place of the global one, which can be set only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda name, version=None: provider.get_tracer(name, version))
    yield exporter
    provider.shutdown()


def build(ref: str) -> str:
    with trace.get_tracer("test").start_as_current_span("inside build"):
        return f"image {ref}"


def fail() -> None:
    raise KeyError("x")


@workflow
async def deploy(ctx: FunctionContext, ref: str) -> str:
    image = await ctx.run(build, ref)
    with contextlib.suppress(RunFailed):
        await ctx.run(fail)
    approval = await ctx.awakeable(title="Deploy?")
    await approval
    note = await ctx.call(Note, {})
    return f"{image} {note}"


class Note(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        return Next(self.wait)

    @step
    def wait(self, ctx: Context) -> Await:
        with trace.get_tracer("test").start_as_current_span("inside wait"):
            return Await("go", then=self.end, timeout=600)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


def app_on(store: Store, *definitions: Any) -> Hark:
    app = Hark(store.url, **store.options)
    app.register(*definitions)
    return app


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None, span.name
    return span.parent.span_id


async def test_x6_one_trace_from_the_caller_to_the_end(store: Store, spans: InMemorySpanExporter) -> None:
    caller, worker = Hark(store.url, **store.options), Hark(store.url, **store.options)
    worker.register(deploy, Note)
    tracer = trace.get_tracer("test")
    async with worker, caller, worker.worker():
        with tracer.start_as_current_span("order page") as page:
            job = await caller.start("deploy", {"ref": "v1"})
        question = await caller.wait_for_awakeable(job, timeout=30)
        await caller.resolve(question.id, "yes")  # outside of any span
        await until(lambda: _waiting(caller), "the child to wait")
        [wait] = await caller.waits(name="go")
        with tracer.start_as_current_span("another page") as another:
            await caller.signal(wait.instance_id, "go", "well")
        assert await job.result(timeout=30) == "image v1 well"
    found = named(spans)
    trace_id = page.get_span_context().trace_id
    ours = {name for name, span in found.items() if span.context.trace_id == trace_id}
    assert ours == {
        "order page", "start deploy", "workflow deploy", "run build", "inside build", "run fail", "wait awakeable",
        "resolve awakeable", "step Note.start", "step Note.wait", "inside wait", "wait signal go", "signal go",
        "step Note.end", "wait children",
    }  # fmt: skip
    assert set(found) - ours == {"another page"}
    start = found["start deploy"].context.span_id
    assert parent(found["start deploy"]) == page.get_span_context().span_id
    for name in ("workflow deploy", "wait awakeable", "resolve awakeable", "wait children"):
        assert parent(found[name]) == start, name
    assert parent(found["inside build"]) == found["run build"].context.span_id
    assert parent(found["inside wait"]) == found["step Note.wait"].context.span_id
    activations = [span.context.span_id for span in spans.get_finished_spans() if span.name == "workflow deploy"]
    assert parent(found["run build"]) == activations[0]
    assert parent(found["step Note.start"]) in activations
    assert [link.context for link in found["signal go"].links] == [another.get_span_context()]
    about = found["step Note.end"].attributes
    assert about is not None
    assert (about["hark.instance"], about["hark.definition"], about["hark.step"]) == (wait.instance_id, "Note", "end")
    assert found["run fail"].status.status_code is trace.StatusCode.ERROR
    assert found["workflow deploy"].status.status_code is trace.StatusCode.UNSET
    for name in ("wait awakeable", "wait signal go", "wait children"):
        span = found[name]
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


async def _waiting(app: Hark) -> bool:
    return bool(await app.waits(name="go"))


class Broken(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        raise ValueError("no such order")


async def test_x6_failures_are_visible_in_the_spans(store: Store, spans: InMemorySpanExporter) -> None:
    async with app_on(store, Broken) as app, app.worker():
        with pytest.raises(InstanceFailed):
            await (await app.start(Broken, id="b-1")).result(timeout=30)
        with pytest.raises(Duplicate):
            await app.start(Broken, id="b-1")
    step = named(spans)["step Broken.start"]
    assert step.status.status_code is trace.StatusCode.ERROR
    assert step.status.description == "ValueError: no such order"
    [event] = step.events
    assert event.attributes is not None
    assert "in start" in str(event.attributes["exception.stacktrace"])
    starts = [span for span in spans.get_finished_spans() if span.name == "start Broken"]
    assert [span.status.status_code for span in starts] == [trace.StatusCode.UNSET, trace.StatusCode.ERROR]


async def test_x6_a_duplicate_does_not_change_the_trace_of_the_holder(
    store: Store, spans: InMemorySpanExporter
) -> None:
    async with app_on(store, Note) as app:
        await app.start(Note, id="n-1")
        with pytest.raises(Duplicate):
            await app.start(Note, id="n-1")
        await app.cancel("n-1")
    first = spans.get_finished_spans()[0]
    assert named(spans)["cancel"].context.trace_id == first.context.trace_id


async def test_x6_the_http_api_continues_the_trace_of_a_request(store: Store, spans: InMemorySpanExporter) -> None:
    app = Hark(store.url, **store.options)
    app.register(Note)
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with app, serving(app) as http:
        headers = {"traceparent": f"00-{trace_id}-{span_id}-01"}
        started = (await http.post("/instances", json={"definition": "Note"}, headers=headers)).json()
        malformed = await http.get(f"/instances/{started['id']}", headers={"traceparent": b"\xff"})
    assert malformed.status_code == 200
    found = named(spans)["start Note"]
    assert f"{found.context.trace_id:x}" == trace_id[1:]
    assert f"{parent(found):x}" == span_id


@workflow
async def sections(ctx: FunctionContext) -> None:
    with trace.get_tracer("test").start_as_current_span("section"):
        await ctx.run(build, "1")
        await ctx.run(build, "2")
        await ctx.wait_for_signal("go", timeout=600)
        await ctx.run(build, "3")


async def test_x6_code_of_a_function_can_make_spans_around_its_operations(
    store: Store, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_on(store, sections) as app, app.worker():
        job = await app.start(sections)
        await job.wait_for("awaiting_signal", timeout=30)
        await job.signal("go")
        await job.result(timeout=30)
    assert [record.getMessage() for record in caplog.records] == []  # OpenTelemetry logs a context that was left open
    ids = {span.context.span_id: span for span in spans.get_finished_spans()}
    found = [span for span in spans.get_finished_spans() if span.name in ("section", "run build")]
    assert [span.name for span in found].count("run build") == 3
    assert {ids[parent(span)].name for span in found} == {"workflow sections"}


@workflow
async def undone(ctx: FunctionContext) -> None:
    await ctx.run(build, "1", undo=lambda image: None)
    await ctx.run(fail, retries=RetryPolicy(2, delay=0.001))


async def test_x6_runs_and_undos_have_spans_with_the_instance_the_attempt_and_the_error(
    store: Store, spans: InMemorySpanExporter
) -> None:
    async with app_on(store, undone) as app, app.worker():
        job = await app.start(undone)
        with pytest.raises(InstanceFailed):
            await job.result(timeout=30)
    attempts = [span for span in spans.get_finished_spans() if span.name == "run fail"]
    assert [(span.attributes or {})["hark.attempt"] for span in attempts] == [0, 1, 2]
    for span in attempts:
        assert span.status.description == "KeyError: 'x'"
        assert (span.attributes or {})["error.type"] == "KeyError"
        [event] = span.events
        assert "in fail" in str((event.attributes or {})["exception.stacktrace"])
    about = named(spans)["undo build"].attributes or {}
    assert (about["hark.instance"], about["hark.definition"]) == (job.id, "undone")


class Endless(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        await asyncio.sleep(3600)
        return Done()


@workflow
async def endless(ctx: FunctionContext) -> None:
    await ctx.gather(ctx.run(asyncio.sleep, 3600), ctx.run(asyncio.sleep, 3600))


async def test_x6_no_span_stays_open_when_code_is_cancelled_or_handed_back(
    store: Store, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_on(store, Endless, endless) as app:
        async with app.worker(grace=0):
            cancelled = [await app.start(definition) for definition in (Endless, endless)]
            for handle in cancelled:
                await handle.wait_for("executing", timeout=30)
                await handle.cancel()
            for definition in (Endless, endless):
                await (await app.start(definition)).wait_for("executing", timeout=30)

        async def all_ended() -> bool:
            names = [span.name for span in spans.get_finished_spans()]
            return names.count("step Endless.start") == names.count("workflow endless") == 2

        await until(all_ended, "the spans")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_x6_the_name_of_a_span_does_not_depend_on_how_many_are_started(
    store: Store, spans: InMemorySpanExporter
) -> None:
    async with app_on(store, Note) as app:
        await app.start_many([(Note, {}), (Note, {})])
    assert (named(spans)["start instances"].attributes or {})["hark.instances"] == 2


TRACED_MODULE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from hark import Hark, workflow

def format(span):
    return f"span {span.name} of {span.context.trace_id:032x}\\n"

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=format)))
trace.set_tracer_provider(provider)
app = Hark("sqlite:///traced.db")

@workflow
async def order(ctx):
    return await ctx.run(str.upper, "tea")

app.register(order)
"""
CALLER = """
from opentelemetry import trace
from traced import app, order

with app, trace.get_tracer("page").start_as_current_span("page"):
    app.start(order).result().result(timeout=60).result()
"""


def test_x6_a_trace_continues_in_hark_worker_when_the_module_of_the_app_configures_a_provider(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(TRACED_MODULE)
    hark = Path(sys.executable).parent / "hark"
    command = [str(hark), "worker", "--app", "traced:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as worker:
        try:
            caller = subprocess.run(
                [sys.executable, "-c", CALLER], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            there, _ = worker.communicate(timeout=60)
    traces = re.findall(r"span (.+) of (\w+)\n", caller.stdout + there)
    assert [name for name, _ in traces] == ["start order", "page", "run upper", "workflow order"]
    assert len({trace_id for _, trace_id in traces}) == 1


def test_x6_without_opentelemetry_nothing_of_it_is_imported() -> None:
    code = """
import asyncio, sys
from hark import Context, Done, Hark, Machine, step
class Hello(Machine):
    @step
    async def start(self, ctx):
        return Done("hello")
async def main():
    app = Hark("sqlite://")
    app.register(Hello)
    async with app, app.worker():
        await (await app.start(Hello)).result(timeout=30)
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "hark.engine.observe.tracing"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


async def test_x6_without_a_provider_there_is_no_tracing(store: Store) -> None:
    async with app_on(store) as app:
        assert app._services.tracing is None
