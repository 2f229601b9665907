"""The app of the worker processes: `hark worker --app tests.crash.worker:app`, or `python -m tests.crash.worker`.

Run as a module it is a worker that ignores notifications: it notices a lost lease only when the database
refuses its outcome, and traces that.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from hark import Hark
from hark.engine.peers.peers import Peers
from hark.engine.worker.attached_worker import AttachedWorker
from hark.kernel.requests import Commit
from hark.model.activation import Claim
from tests.crash.machines import ALL, after, block, pay_and_wait, trace, wait_at_the_gate

app = Hark(os.environ["HARK_TEST_URL"], **json.loads(os.environ["HARK_TEST_OPTIONS"]))
app.register(*ALL)
app.handler("block")(block)
app.handler("wait at the gate")(wait_at_the_gate)
app.handler("after")(after)
app.handler("pay and wait")(pay_and_wait)


def make_deaf() -> None:
    receive = AttachedWorker.receive

    def traced(self: AttachedWorker, commits: Sequence[Commit], claims: Sequence[Claim]) -> None:
        receive(self, commits, claims)
        for commit in commits:
            if commit.fenced:
                trace(f"refused {commit.claim.id}")

    async def hear_nothing(self: Peers) -> None:
        """Ignored: would notify the worker which of its steps were reclaimed."""

    AttachedWorker.receive = traced  # type: ignore[method-assign]
    Peers.find_lost_steps = hear_nothing  # type: ignore[method-assign]


async def main() -> None:
    make_deaf()
    async with app, app.worker():
        trace("ready")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
