"""Agents, a person and a shell command in one job: `python examples/agents/run.py`, or with `--yes` to answer yourself.

The job waits for the approval without a process. Stop it with Ctrl-C and run it again: it still waits.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from hark import Duplicate, Hark, load_job

HERE = Path(__file__).resolve().parent
AGENT = [sys.executable, str(HERE / "agent.py")]

app = Hark(
    "sqlite:///agents.db",
    agents={"writer": [*AGENT, "writer", "{model}"], "reviewer": [*AGENT, "reviewer"]},
)
article = load_job(HERE / "article.yaml")


async def main(answer: bool) -> None:
    app.register(article)
    async with app, app.worker():
        try:
            job = (await app.start(article, {"subject": "durable agents"}, correlation_key="article")).id
            print(f"started {job}")
        except Duplicate as duplicate:
            job = duplicate.holder
            print(f"{job} of the last run goes on")
        while not (asked := await app.awakeables(job=job, status="PENDING")):
            await asyncio.sleep(0.05)
        print(f"{asked[0].title} Answer with:\n    hark awakeable resolve {asked[0].id} --db sqlite:///agents.db")
        if answer:
            await app.resolve(asked[0].id, "yes", by="you")
        print("result:", await app.result(job))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yes", action="store_true", help="approve it yourself")
    try:
        asyncio.run(main(parser.parse_args().yes))
    except KeyboardInterrupt:
        print("stopped; run it again, and it still waits")
