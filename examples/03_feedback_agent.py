"""An agent that asks for feedback while it works: each round is an iteration of a loop, and a person sends a signal.

Run it: `python examples/03_feedback_agent.py`, then send the printed command from another terminal. Stop it with Ctrl-C
and run it again: the conversation is in its checkpoint, and it still waits. The model is a stub, so it works offline.
"""

import argparse
import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hark import Dag, Duplicate, Hark, TaskContext

MINUTE = 60


@dataclass
class Draft:
    history: list[str]
    summary: str
    needs_feedback: bool


async def call_llm(history: list[str]) -> Draft:
    """Write a draft. In production: call a model. This one is content when a person has written "ok"."""
    said = [line.removeprefix("user: ") for line in history if line.startswith("user: ")]
    summary = f"Draft {len(said) + 1}" + (f", shorter, with {', '.join(said)}" if said else "")
    return Draft([*history, f"agent: {summary}"], summary, needs_feedback=said[-1:] != ["ok"])


async def llm_agent(task: TaskContext) -> Any:
    """One round of the agent. It runs again from its checkpoint when the feedback arrives, on any worker; the model is
    not called again for it."""
    draft = await task.run(call_llm, await task.load_checkpoint() or [f"user wants: {task.input['topic']}"])
    if not draft.needs_feedback:
        return task.complete(draft.summary)
    await task.put_stream(f"{draft.summary}. Waiting for user feedback...")
    feedback = await task.wait_for_signal("user-feedback", timeout=30 * MINUTE)
    await task.checkpoint([*draft.history, f"user: {feedback}"])
    return task.continue_(feedback)


dag = Dag("feedback-agent")
dag.loop("agent", "llm-agent", max_iterations=10)


async def show_stream(app: Hark, job: str, seen: set[int]) -> None:
    """Print what the agent has streamed since the last call. `hark job logs -f` and the browser show it live."""
    for event in await app.events(job, limit=1000):
        if event.type == "stream" and event.seq not in seen:
            print(f"  agent: {event.data['chunk']}", flush=True)
            seen.add(event.seq)


async def main() -> None:
    app = Hark(options.db, linger=options.linger)
    app.handler("llm-agent")(llm_agent)
    app.register(dag)
    async with app, app.worker():
        try:
            job = (await app.start(dag, {"topic": "release notes"}, correlation_key="release notes")).id
        except Duplicate as error:
            job = error.holder
            print("  The agent of the last run continues.", flush=True)
        print(f"  Send feedback, any number of times, and `ok` in the end:\n    {command(job)}", flush=True)
        for feedback in options.feedback:
            await app.signal(job, "user-feedback", feedback)
        seen: set[int] = set()
        while (await app.get(job)).finished_at is None:
            await show_stream(app, job, seen)
            await asyncio.sleep(0.2)
        await show_stream(app, job, seen)
        result = await app.result(job)
        print(f"  result: {result['agent']}", flush=True)


def command(job: str) -> str:
    hark = "hark" if shutil.which("hark") else os.path.relpath(Path(sys.executable).parent / "hark")
    return f"{hark} signal {job} user-feedback --payload 'more examples' --db {options.db}"


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--db", default=f"sqlite:///{Path('agent.db').resolve()}", help="the store")
parser.add_argument("--linger", type=float, default=5, help="seconds until a waiting agent gives up its slot")
parser.add_argument("--feedback", action="append", default=[], help="send this feedback; may be repeated")
options = parser.parse_args()

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("\n  Stopped. The agent still waits in the database: run it again.", flush=True)
