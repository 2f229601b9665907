"""Awakeables created directly: an instance parked on them, as an interpreter would park it."""

from __future__ import annotations

import json
import secrets
from typing import Any

from hark import Context, Done, Hark, Machine, step
from hark.kernel.requests import HandBack
from hark.model.decisions import Arm, NewAwakeable, Park
from hark.model.names import SECOND, awakeable_id
from hark.model.schema import compile_schema
from tests.promises.support_signals import Turns
from tests.support.stores import Store


class Asker(Machine):
    """Ends with the answer it received, as its inbox has it."""

    @step
    async def start(self, ctx: Context) -> Done:
        raise AssertionError("parked by hand, before it ran")

    @step
    async def answered(self, ctx: Context) -> Done:
        return Done([json.loads(row.payload) for row in ctx._claim.inbox])


async def ask(
    app: Hark,
    store: Store,
    asker: str = "asker",
    *,
    title: str | None = "May I?",
    description: str | None = None,
    schema: Any = None,
    assignees: list[str] | None = None,
    timeout: float | None = None,
    named: str | None = None,
) -> str:
    """Create an awakeable in this app's store and return its id."""
    id = awakeable_id(named or asker, 0)
    span = None if timeout is None else int(timeout * SECOND)
    arm = Arm("awakeable", f"wait-{asker}", name=id, timeout=span)
    new = NewAwakeable(
        id, 0, timeout=span, nonce=secrets.token_urlsafe(16), title=title, description=description,
        schema=compile_schema(schema)[0], assignees=None if assignees is None else json.dumps(assignees),
    )  # fmt: skip
    async with Turns(store, getattr(app, "clock", None)) as turns:
        await app.start(Asker, id=asker)
        # Other instances may have been answered and be claimable by now: they are not run here.
        claims = {claim.id: claim for claim in (await turns.run(lanes=["Asker"], room=100)).claims}
        await turns.commit(claims.pop(asker), Park((arm,), awakeables=(new,)), step="answered")
        await turns.run(HandBack(claims=list(claims.values())))
    return id
