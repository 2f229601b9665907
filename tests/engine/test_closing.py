"""A call that an app accepts just before it is closed gets an answer."""

from collections.abc import Callable
from typing import Any

import pytest

from hark import Await, Context, Handle, Hark, Machine, NotOpen, Reply, step
from tests.support.stores import Store

CALLS: dict[str, Callable[[Handle[Any]], Reply[Any]]] = {
    "a wait for the end": lambda parked: parked.result(),
    "a wait for a status": lambda parked: parked.wait_for("done"),
}


class Parked(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.start)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_accepted_just_before_the_close_is_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    app = Hark(store.url, **store.options)
    replies: list[Reply[Any]] = []
    with app:
        parked = app.start(Parked).result()
        loop = app._clerk.loop
        original = loop.leave

        async def leave() -> None:
            loop.closing = False  # as it was when the call came
            replies.append(CALLS[name](parked))
            loop.closing = True
            await original()

        monkeypatch.setattr(loop, "leave", leave)
    with pytest.raises(NotOpen, match="closed before"):
        replies[0].result(20)
