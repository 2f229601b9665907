"""A deploy that asks a person, and waits: for a minute or for a month, through a link, curl or the command line.

Run it: `python examples/02_deploy.py`, or `make demo`. Stop it with Ctrl-C and run it again: it still waits.
"""

import argparse
import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from hark import AwakeableRejected, Duplicate, FunctionContext, Hark, HarkError, workflow


@dataclass
class Verdict:
    approved: bool
    note: str = ""


async def build(ref: str) -> str:
    print(f"  building {ref}: done once, whatever happens later", flush=True)
    return f"registry/app:{ref}"


async def ask(id: str, url: str) -> None:
    """A mail, a chat message, a ticket: here it is the terminal."""
    print(f"  Deploy? Answer in one of these ways:\n{ways(id, url)}", flush=True)


async def release(image: str, note: str) -> str:
    return f"{image} is live" + (f" ({note})" if note else "")


@workflow
async def deploy(ctx: FunctionContext, ref: str) -> str:
    image = await ctx.run(build, ref)
    approval = await ctx.awakeable(
        title=f"Deploy {ref}?", description="To production.", schema=Verdict, timeout=7 * 86400
    )
    await ctx.run(ask, approval.id, approval.url)
    try:
        verdict = await approval  # parked: no thread, no memory, no lease
    except AwakeableRejected as refusal:
        return f"not deployed: {refusal}"
    if not verdict.approved:
        return f"not deployed: {verdict.note or 'no reason given'}"
    return await ctx.run(release, image, verdict.note)


def ways(id: str, url: str) -> str:
    server = url.split("/a/")[0]
    hark = "hark" if shutil.which("hark") else os.path.relpath(Path(sys.executable).parent / "hark")
    return (
        f"    open  {url}\n"
        f"    curl -X POST {server}/awakeables/{id}/resolve -d '{{\"approved\": true}}'\n"
        f"    {hark} awakeable resolve {id} --payload '{{\"approved\": true}}' --db {options.db}"
    )


async def watch(app: Hark, ready: asyncio.Event) -> None:
    """Start the deploy, or find the one that waits; print how it ends."""
    await ready.wait()  # until then a link has no address to start with
    try:
        it = await app.start(deploy, {"ref": "v1"}, correlation_key="deploy:v1")
    except Duplicate as waiting:
        it = await app.get(waiting.holder)
        print("  It still waits for your answer:", flush=True)
        for question in await app.awakeables(job=it.id, status="PENDING"):
            print(ways(question.id, question.url), flush=True)
    print(f"  result: {await app.result(it.id)}", flush=True)


async def main() -> None:
    app = Hark(options.db)
    app.register(deploy)
    async with app:
        ready = asyncio.Event()

        def say(line: str) -> None:
            print(line, flush=True)
            ready.set()

        serving = asyncio.ensure_future(app.serve(port=options.port, say=say))
        watching = asyncio.ensure_future(watch(app, ready))
        await asyncio.wait([serving, watching], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            print("  Stopped. The deploy still waits in the file: run it again.", flush=True)
        for part in (serving, watching):
            part.cancel()
        await asyncio.gather(serving, watching, return_exceptions=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--db", default=f"sqlite:///{Path('demo.db').resolve()}", help="where it is kept")
parser.add_argument("--port", type=int, default=4097, help="0 takes a free one")
options = parser.parse_args()

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except HarkError as error:  # a port that is taken, a file that is no database
        sys.exit(str(error))
