"""Code of a user with mistakes: both type checkers report each line marked `# wrong`, and no other line."""

from dataclasses import dataclass

from hark import FunctionContext, Handle, Hark, RetryPolicy, Start, workflow


@dataclass
class Verdict:
    approved: bool


async def build(ref: str) -> int:
    return len(ref)


async def remove(ref: str) -> None:
    print(ref)


@workflow
async def deploy(ctx: FunctionContext, ref: str) -> int:
    await ctx.run(build, 5)  # wrong
    await ctx.run(build, ref, ref)  # wrong
    await ctx.run(build)  # wrong
    await ctx.run(build, ref, undo=remove)  # wrong
    await ctx.run(build, ref, timeout="5 s")  # wrong
    await ctx.run(build, ref, retries=RetryPolicy(3, unless=("ValueError",)))  # wrong
    other: str = await ctx.run(build, kwargs={"ref": ref})  # wrong
    text: str = await ctx.run(build, ref)  # wrong
    approval = await ctx.awakeable(schema=Verdict)
    verdict: int = await approval  # wrong
    child: str = await ctx.call(deploy, {"ref": text})  # wrong
    await ctx.call(deploy, {"ref": child}, priorty=1)  # wrong
    return verdict + len(other)


async def call(app: Hark) -> None:
    run = await app.start(deploy, {"ref": "v1"})
    text: str = await run.result()  # wrong
    wrong: Handle[str] = run  # wrong
    other: str = await app.result(run)  # wrong
    await app.start(deploy, priorty=5)  # wrong
    await app.start(deploy, correlation_scope="sometimes")  # wrong
    await app.start(5)  # wrong
    await app.start_many([Start(deploy, {"ref": "v1"}, priority="high")])  # wrong
    await run.wait_for("finished")  # wrong
    await app.signal(5, "go")  # wrong
    await app.signal(run, b"go")  # wrong
    number: int = await app.signal(run, "go")  # wrong
    app.register("deploy")  # wrong
    app.worker(["default"])  # wrong
    print(run.result().status)  # wrong
    print(text, wrong, other, number)
