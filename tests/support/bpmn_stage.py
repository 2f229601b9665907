"""Processes on a stage: the real interpreter decides, and its outcomes go into turns that the test steps by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hark.kernel.requests import Capacity, Commit, Deploy, DeployGroup, StartInstances
from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import NewInstance
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.model.trigger import Trigger
from hark.programs.bpmn.bpmn_spec import BpmnSource, encode_bpmn, step_of_start
from hark.programs.bpmn.file import read_bpmn
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.bpmn.interpreter.bpmn_interpreter import run_bpmn
from hark.programs.bpmn.interpreter.instance_state import view
from hark.programs.jobs.job_services import TaskOutput
from tests.support.stage import Stage

HEAD = '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="races">'


def deployment(body: str, more: str = "") -> DeployGroup:
    """The deploy of a file whose process `p` has this content. Signal start events start it by their name."""
    text = f'{HEAD}{more}<process id="p" isExecutable="true">{body}</process></definitions>'
    [spec] = read_bpmn(text.encode()).processes
    starts = [
        Trigger(kind="broadcast", name=node.event.name, element=step_of_start(node.id))
        for node in spec.starts
        if node.event is not None and node.event.kind == "signal"
    ]
    source = encode_bpmn(BpmnSource(spec, text))
    deploy = Deploy(name="p", kind=BPMN, queue=ENGINE_QUEUE, source=source, digest=source, starts=starts)
    return DeployGroup(deploys=[deploy])


class BpmnStage:
    """Instances of the newest version of the process `p`."""

    max_payload = 1_000_000

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._graphs: dict[int, BpmnGraph] = {}

    # -- what the interpreter needs ----------------------------------------------------------------

    async def bpmn_graph(self, definition: str, version: int) -> BpmnGraph:
        if version not in self._graphs:
            from hark.programs.bpmn.bpmn_spec import decode_bpmn

            source = await self.stage.eye.fetchval(
                "SELECT source FROM definitions WHERE name = $1 AND version = $2", definition, version
            )
            self._graphs[version] = BpmnGraph(decode_bpmn(source).process)
        return self._graphs[version]

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        sql = "SELECT id, status, state, result, error FROM instances WHERE id = ANY($1)"
        return {row["id"]: TaskOutput(*row) for row in await self.stage.eye.fetch(sql, list(ids))}

    # -- instances -----------------------------------------------------------------------------------

    async def deploy(self, body: str, more: str = "") -> None:
        group = deployment(body, more)
        await self.stage.one.run(group)
        assert isinstance(group.result, list), group.result

    def capacity(self, owner: str = "worker", room: int = 1) -> Capacity:
        return Capacity(owner, {ENGINE_QUEUE: room}, {BPMN: TASK_TRAITS})

    async def claim(self) -> Claim:
        """The instance that can run now."""
        [claim] = (await self.stage.one.run(claim=self.capacity())).claims
        return claim

    async def decided(self, claim: Claim) -> Commit:
        """The outcome of an activation, not committed yet."""
        return Commit(claim=claim, decision=await run_bpmn(claim, self))  # type: ignore[arg-type]

    async def begun(self, id: str, variables: str = "{}", **options: Any) -> Commit:
        """The outcome of the first activation of a new instance, not committed yet."""
        item = NewInstance("p", variables, id, named=True, **options)
        start = StartInstances(items=[item])
        await self.stage.one.run(start)
        assert start.result == [id], start.result
        return await self.decided(await self.claim())

    async def resting(self, id: str, variables: str = "{}", **options: Any) -> None:
        """An instance that has gone as far as it can."""
        await self.stage.one.run(await self.begun(id, variables, **options))

    async def settle(self) -> None:
        """Run all instances until none can go on."""
        for _ in range(20):
            claims = (await self.stage.one.run(claim=self.capacity("settle", 10), sweep=True)).claims
            if not claims:
                await self.stage.audited_content()
                return
            await self.stage.one.run(*[await self.decided(claim) for claim in claims])
        raise AssertionError("there was always more to do")

    # -- what can be seen ----------------------------------------------------------------------------

    async def awakeable(self, id: str) -> str:
        return str(await self.stage.eye.fetchval("SELECT id FROM awakeables WHERE instance_id = $1", id))

    async def seen(self, id: str) -> tuple[str, dict[str, Any]]:
        """The status of an instance, and its variables."""
        row = await self.stage.eye.fetchrow("SELECT status, state, step FROM instances WHERE id = $1", id)
        return row["status"], view(row["state"], row["step"])["variables"]
