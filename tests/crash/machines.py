"""Machines that misbehave on purpose. What they do is traced in a file, outside the database and the process.

`HARK_TEST_FOLDER` names the folder of the trace and of the gates, files that steps wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from hark import Await, Child, Context, Done, Machine, Next, Retry, Spawn, Stop, TaskContext, step


def folder() -> Path:
    return Path(os.environ["HARK_TEST_FOLDER"])


def trace(what: str) -> None:
    """Appends one line in a single write, so that it survives a kill of this process."""
    fd = os.open(folder() / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{os.getpid()} {what}\n".encode())
    os.close(fd)


def is_open(gate: str) -> bool:
    return (folder() / gate).exists()


async def wait_at(gate: str) -> None:
    while not is_open(gate):
        await asyncio.sleep(0.005)


class Gated(Machine):
    """Waits at a gate without blocking the loop."""

    @step
    async def start(self, ctx: Context) -> Next:
        trace(f"start {ctx.attempt}")
        await wait_at("gate")
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        trace(f"end {ctx.attempt}")
        return Done(os.getpid())

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        trace(f"handle {error!r}")
        return Stop(error)


class Parses(Machine):
    """Calls a library that calls `sys.exit`: argparse, for an argument that it does not know."""

    @step
    async def start(self, ctx: Context) -> Done:
        argparse.ArgumentParser().parse_args(["--unknown"])
        return Done()

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        trace(f"handle {error!r}")
        return Stop(error)


class Blocking(Machine):
    """Waits at a gate and blocks its event loop while it waits."""

    @step
    async def start(self, ctx: Context) -> Done:
        trace(f"start {ctx.attempt}")
        while not is_open("gate"):
            time.sleep(0.005)  # noqa: ASYNC251
        return Done(os.getpid())


async def block(task: TaskContext) -> int:
    """A handler that waits at a gate and blocks its event loop meanwhile."""
    trace(f"attempt {task.attempt}")
    while not is_open("gate"):
        time.sleep(0.005)  # noqa: ASYNC251
    return os.getpid()


async def wait_at_the_gate(task: TaskContext) -> dict[str, Any]:
    """A handler of a service task that waits at a gate."""
    trace(f"wait {task.attempt}")
    await wait_at("gate")
    return {"waited": os.getpid()}


async def after(task: TaskContext) -> dict[str, Any]:
    """The handler of the service task after that."""
    trace("after")
    return {"after": task.input["waited"] == os.getpid()}


async def pay(gate: str) -> str:
    """A function that is to be called once, and waits at a gate before it ends."""
    trace("paid")
    await wait_at(gate)
    return "receipt"


async def pay_and_wait(task: TaskContext) -> str:
    """A handler that pays, and waits at a gate with the receipt."""
    receipt = await task.run(pay, task.inputs["gate"])
    trace(f"has the {receipt}")
    await wait_at("gate")
    return receipt


class Threaded(Machine):
    """A synchronous step, which cancellation cannot interrupt."""

    @step
    def start(self, ctx: Context) -> Done:
        trace(f"start {ctx.attempt}")
        while not is_open("gate"):
            time.sleep(0.005)
        return Done(os.getpid())


class Killer(Machine):
    """Each of its steps kills its worker as often as the input says, then completes."""

    @step
    async def start(self, ctx: Context) -> Next:
        self.perhaps_die(ctx)
        return Next(self.again)

    @step
    async def again(self, ctx: Context) -> Done:
        self.perhaps_die(ctx)
        return Done(ctx.attempt)

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        trace(f"handle {error!r}")
        return Stop(error)

    def perhaps_die(self, ctx: Context) -> None:
        trace(ctx.step)
        died = sum(line.endswith(f" {ctx.step}") for line in (folder() / "trace").read_text().splitlines())
        if died <= ctx.state["deaths"]:
            os.kill(os.getpid(), signal.SIGKILL)


class Family(Machine):
    """A parent of children that become zombies, one per outcome."""

    OUTCOMES = ("next", "retry", "await", "spawn", "done", "stop")

    @step
    async def start(self, ctx: Context) -> Spawn:
        children = [Child(Zombie, {"outcome": outcome}, id=f"zombie-{outcome}") for outcome in self.OUTCOMES]
        return Spawn(children, then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done({child.id: child.result for child in ctx.children})


class Zombie(Machine):
    """In the process called "zombie" its outcome is late; in any other process it is later still."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("note", then=self.work)

    @step
    async def work(self, ctx: Context) -> Any:
        trace(f"work {ctx.state['outcome']}")
        if os.environ.get("HARK_TEST_ROLE") != "zombie":
            await wait_at("later gate")
            return Await("end", then=self.end)
        await wait_at("gate")
        ctx.state["zombie"] = True
        ctx.signal("witness", "note", ctx.state["outcome"])
        ctx.start(Gated, id=f"started-by-{ctx.state['outcome']}")
        match ctx.state["outcome"]:
            case "next":
                return Next(self.end)
            case "retry":
                return Retry()
            case "await":
                return Await("note", "other", then=self.end)
            case "spawn":
                return Spawn([Child(Gated)], then=self.end)
            case "done":
                return Done("by a zombie")
        return Stop("by a zombie")

    @step
    async def end(self, ctx: Context) -> Done:
        return Done([signal.name for signal in ctx.all])


class Witness(Machine):
    """Returns what its inbox received."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done([signal.payload for signal in ctx.all])


class Patient(Machine):
    """Not in ALL: a test registers it in its own process."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("tick", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


ALL = (Gated, Parses, Blocking, Threaded, Killer, Family, Zombie, Witness)
