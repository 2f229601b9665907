"""A BPMN instance and its children, without an interpreter."""

from typing import Any

from hark.kernel.requests import Capacity, DefinitionRow, Register
from hark.model.activation import Claim, Traits
from hark.model.decisions import Arm, Effect, NewInstance, NewTask, Park
from hark.model.lanes import BPMN, ENGINE_QUEUE
from tests.promises.support_signals import Turns, outcome
from tests.support.stores import Store

LANE = "task:charge"
ENDS = "w-ends"


class Family:
    """A process `p` whose children end against one wait that each end answers."""

    def __init__(self, store: Store) -> None:
        self.store, self.turns = store, Turns(store)

    async def __aenter__(self) -> "Family":
        await self.turns.__aenter__()
        await self.turns.run(Register(rows=[DefinitionRow("P", 1, BPMN, ENGINE_QUEUE, "start")]))
        await self.turns.start("P", "p")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.turns.__aexit__(*exc)

    async def claims(self, *requests: Any) -> dict[str, Claim]:
        room = Capacity("by-hand", {"default": 200, ENGINE_QUEUE: 9}, dict.fromkeys((LANE, BPMN), Traits()))
        return {claim.id: claim for claim in (await self.turns.run(*requests, capacity=room)).claims}

    async def parked(self, *ids: str, **arm: Any) -> dict[str, Claim]:
        """The process is parked, and these children execute."""
        parent = (await self.claims())["p"]
        wait = Arm("children", ENDS, "ends", **{"answers_each": True, **arm})
        return await self.claims(outcome(parent, Park((wait,), disarm=()), effects=[child(id) for id in ids]))


def child(id: str) -> Effect:
    item = NewInstance("P", "{}", id, named=True, version=1, step="charge", lane=LANE, kind="task", queue="default")
    return NewTask(item, ENDS)
