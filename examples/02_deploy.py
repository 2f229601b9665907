"""A deploy that waits for a person's approval: through a link, curl or the command line, for a minute or a month.

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
    print(f"  building {ref} (once it is done, a restart does not build again)", flush=True)
    return f"registry/app:{ref}"


async def ask(id: str, url: str) -> None:
    """Ask for approval: by e-mail, chat or ticket in production, on the terminal here."""
    print(f"  Deploy? Answer in one of these ways:\n{ways_to_answer(id, url)}", flush=True)


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
        verdict = await approval  # parked: uses no thread, no memory, no lease
    except AwakeableRejected as rejection:
        return f"not deployed: {rejection}"
    if not verdict.approved:
        return f"not deployed: {verdict.note or 'no reason given'}"
    return await ctx.run(release, image, verdict.note)


def ways_to_answer(id: str, url: str) -> str:
    server = url.split("/a/")[0]
    hark = "hark" if shutil.which("hark") else os.path.relpath(Path(sys.executable).parent / "hark")
    return (
        f"    open  {url}\n"
        f"    curl -X POST {server}/awakeables/{id}/resolve -d '{{\"approved\": true}}'\n"
        f"    {hark} awakeable resolve {id} --payload '{{\"approved\": true}}' --db {options.db}"
    )


async def watch(app: Hark, ready: asyncio.Event) -> None:
    """Start the deploy, or find the one that is waiting, and print its result. Links need the server's address."""
    await ready.wait()
    try:
        id = (await app.start(deploy, {"ref": "v1"}, correlation_key="deploy:v1")).id
    except Duplicate as error:
        id = error.holder
        questions = await app.awakeables(job=id, status="PENDING")
        if questions:
            print("  The deploy of the last run still waits for your answer:", flush=True)
        else:
            print("  The last run was killed while it worked. This one takes over when its lease ends, within 30 s.")
        for question in questions:
            print(ways_to_answer(question.id, question.url), flush=True)
    print(f"  result: {await app.result(id)}", flush=True)


async def main() -> None:
    app = Hark(options.db)
    app.register(deploy)
    async with app:
        ready = asyncio.Event()

        def say(line: str) -> None:
            print(line, flush=True)
            ready.set()

        server = asyncio.ensure_future(app.serve(port=options.port, say=say))
        watcher = asyncio.ensure_future(watch(app, ready))
        await asyncio.wait([server, watcher], return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
            print("  Stopped. The deploy still waits in the database: run it again.", flush=True)
        for task in (server, watcher):
            task.cancel()
        await asyncio.gather(server, watcher, return_exceptions=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--db", default=f"sqlite:///{Path('demo.db').resolve()}", help="the store")
parser.add_argument("--port", type=int, default=4097, help="0 selects a free port")
options = parser.parse_args()

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except HarkError as error:  # the port is in use, or the file is not a database
        sys.exit(f"{error} With make: make demo ARGS='--port 0'")
