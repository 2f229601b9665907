"""Code of a user, correct: mypy --strict and pyright find nothing to report. Checked by test_typing.py, never run."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from hark import (
    Await,
    Awakeable,
    AwakeableHandle,
    Context,
    Delivery,
    Done,
    Duplicate,
    Event,
    FunctionContext,
    Handle,
    Hark,
    Instance,
    Machine,
    Page,
    Reply,
    RetryPolicy,
    Signal,
    Start,
    Stop,
    Token,
    Wait,
    Why,
    step,
    workflow,
)
from hark.testing import Harness


@dataclass
class Image:
    name: str


@dataclass
class Verdict:
    approved: bool


async def build(ref: str) -> Image:
    return Image(ref)


async def remove(image: Image) -> None:
    print(image.name)


def release(image: Image, note: str) -> int:
    return len(image.name + note)


@workflow
async def deploy(ctx: FunctionContext, ref: str) -> int:
    image = await ctx.run(build, ref, retries=3)
    assert_type(image, Image)
    approval = await ctx.awakeable(timeout=timedelta(hours=2), title=f"Deploy {ref}?", schema=Verdict)
    assert_type(approval, AwakeableHandle[Verdict])
    assert_type(approval.url, str)
    verdict = await approval
    assert_type(verdict, Verdict)
    count = await ctx.run(release, image, "now", retries=RetryPolicy(3, max_delay=60, unless=(ValueError,)), timeout=5)
    assert_type(count, int)
    assert_type(await ctx.run(release, image, kwargs={"note": "now"}), int)
    assert_type(await ctx.run(build, kwargs={"ref": ref}, timeout=timedelta(minutes=1)), Image)
    assert_type(await ctx.run(build, ref, undo=remove), Image)
    assert_type(await ctx.run(release, image, "now", undo=lambda count: print(count)), int)
    assert_type(await ctx.wait_for_signal("go", timeout=5), Signal)
    return count


@workflow(name="parent", version=2, queue="ops")
async def parent(ctx: FunctionContext) -> list[int]:
    first = await ctx.call(deploy, {"ref": "v1"})
    assert_type(first, int)
    assert_type(await ctx.call("by-name"), Any)
    plain = await ctx.awakeable()
    assert_type(await plain, Any)
    assert_type(await ctx.start(deploy, {"ref": "v2"}), str)
    assert_type(await ctx.gather(ctx.run(build, "a"), ctx.run(build, "b")), list[Image])
    assert_type(
        await ctx.gather(ctx.run(build, "a"), ctx.run(build, "b"), return_exceptions=True), list[Image | Exception]
    )
    index, image = await ctx.first(ctx.run(build, "a"), ctx.run(build, "b"))
    assert_type(index, int)
    assert_type(image, Image)
    return [first]


class Checkout(Machine, version=1, queue="checkout"):
    @dataclass
    class State:
        order: int

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.ship, timeout=3600)

    @step
    def ship(self, ctx: Context) -> Done | Stop:
        return Stop("not paid") if ctx.timed_out else Done(ctx.awaited[0].payload)


async def in_async_code(app: Hark) -> None:
    app.register(deploy, parent, Checkout)
    async with app, app.worker({"default": 10}):
        run = await app.start(deploy, {"ref": "v1"}, correlation_key="deploy:v1", delay=timedelta(seconds=1))
        assert_type(run, Handle[int])
        assert_type(await run.result(timeout=5), int)
        assert_type(await app.result(run), int)
        assert_type(await app.result(run.id), Any)
        assert_type(await app.start(parent), Handle[list[int]])
        assert_type(await app.start(Checkout, {"order": 1}, step=Checkout.ship), Handle[Any])
        assert_type(await app.start("checkout"), Handle[Any])
        assert_type(await app.signal_with_start(deploy, "key", "go", input={"ref": "v1"}), Handle[int])
        assert_type(await app.signal_with_start(Checkout, "key", "go"), Handle[Any])
        many = await app.start_many([(deploy, {"ref": "v3"}), Start(Checkout, {"order": 2}, priority=5)])
        assert_type(many, list[Handle[Any] | Duplicate])

        assert_type(await run.wait_for("awaiting_signal", timeout=5), Instance)
        assert_type(await run.get(), Instance)
        assert_type(await run.signal("go", {"a": 1}), Delivery)
        assert_type(await app.signal(run, "go"), Delivery)
        assert_type(await app.broadcast("open"), int)
        assert_type(await app.message("paid", "order:1"), Handle[Any])
        assert_type(await app.message("paid", "order:1", ttl=60), Handle[Any] | None)
        question = await app.wait_for_awakeable(job=run, timeout=5)
        assert_type(question, Awakeable)
        assert_type(await app.resolve(question.id, Verdict(True), by="ann"), Awakeable)
        assert_type(await app.reject(question.id, "no"), Awakeable)
        assert_type(await app.awakeables(job=run.id), Page[Awakeable])
        assert_type(await app.list(status="failed"), Page[Instance])
        assert_type(await app.events("deploy:v1"), Page[Event])
        assert_type(await app.waits(name="go"), Page[Wait])
        assert_type(await app.why(run), Why)
        assert_type(await app.cancel(run, "enough"), Instance)
        assert_type(await app.create_token(["read"], expires=60), Token)


def in_synchronous_code(app: Hark) -> None:
    with app, app.worker():
        reply = app.start(deploy, {"ref": "v1"})
        assert_type(reply, Reply[Handle[int]])
        assert_type(reply.result().result().result(), int)


def helper(handle: Handle[object], any_handle: Handle) -> None:
    """A handle of an int is a handle of an object; one without a parameter is a handle of anything."""


async def in_a_test() -> None:
    async with Harness(deploy, Checkout, max_payload=100) as app:
        run = await app.start(deploy, {"ref": "v1"})
        assert_type(run, Handle[int])
        helper(run, run)
        app.answer("Deploy v1?", {"approved": True})
        assert_type(await app.drain(), dict[str, int])
        await app.advance(timedelta(hours=1))
