"""D6: a Harness says which sequence flows of a process the tests took; pytest adds them up."""

from pathlib import Path

import pytest

from hark import Done, Machine, NotFound, step
from hark.testing import Harness
from tests.promises.test_d6_pytest_plugin import run
from tests.support.stores import Store

ORDER = """
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="tests">
  <process id="order" isExecutable="true">
    <startEvent id="start" name="Order received"/>
    <sequenceFlow id="f1" sourceRef="start" targetRef="size"/>
    <exclusiveGateway id="size" default="f3"/>
    <sequenceFlow id="f2" name="large" sourceRef="size" targetRef="inner">
      <conditionExpression>=total &gt; 100</conditionExpression>
    </sequenceFlow>
    <sequenceFlow id="f3" sourceRef="size" targetRef="end"/>
    <subProcess id="inner" name="Check it">
      <startEvent id="inner_start"/>
      <sequenceFlow id="f4" sourceRef="inner_start" targetRef="inner_end"/>
      <endEvent id="inner_end"/>
    </subProcess>
    <sequenceFlow id="f5" sourceRef="inner" targetRef="end"/>
    <endEvent id="end"/>
  </process>
</definitions>
"""


class Other(Machine):
    @step
    async def start(self, ctx: object) -> Done:
        return Done()


async def test_d6_the_coverage_of_a_process_counts_the_flows_that_all_its_instances_took(store: Store) -> None:
    async with Harness(Other, url=store.url, **store.options) as app:
        await app.deploy(ORDER)
        assert (await app.coverage("order")).ratio == 0
        await app.start("order", {"total": 7})
        await app.start(Other)
        await app.drain()
        found = await app.coverage("order")
        assert (found.version, found.taken, found.missed, found.ratio) == (1, ["f1", "f3"], ["f2", "f4", "f5"], 0.4)
        assert "  missed f2: size → Check it (large)" in str(found).splitlines()
        await app.start("order", {"total": 700})
        await app.drain()
        found = await app.coverage("order")
        assert {flow.id: flow.count for flow in found.flows} == {"f1": 2, "f2": 1, "f3": 1, "f4": 1, "f5": 1}
        assert str(found) == "order version 1: 5 of 5 sequence flows taken (100 %)"


async def test_d6_coverage_is_that_of_one_version_of_a_process_in_this_store() -> None:
    async with Harness() as app:
        await app.deploy(ORDER)
        await app.start("order", {"total": 700})
        await app.drain()
        await app.deploy(ORDER.replace("total &gt; 100", "total &gt; 10"))
        assert (await app.coverage("order")).taken == []
        assert (await app.coverage("order", version=1)).missed == ["f3"]
        with pytest.raises(NotFound, match="version 3"):
            await app.coverage("order", version=3)
        with pytest.raises(NotFound, match="Deploy it first"):
            await app.coverage("orders")


TESTS = f"""
import pytest
from hark.testing import Harness

ORDER = '''{ORDER}'''


def test_small(hark_app):
    hark_app.deploy(ORDER).result()
    order = hark_app.start("order", {{"total": 7}}).result()
    with hark_app.worker():
        order.result().result()


@pytest.mark.asyncio
async def test_large():
    async with Harness() as app:
        await app.deploy(ORDER)
        for total in TOTALS:
            await app.start("order", {{"total": total}})
        await app.drain()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "totals", "taken"),
    [(0, "()", "2 of 5 sequence flows taken (40 %)"), (2, "(700,)", "5 of 5 sequence flows taken (100 %)")],
)
def test_d6_pytest_prints_the_coverage_of_all_tests_together(
    tmp_path: Path, processes: int, totals: str, taken: str
) -> None:
    plugins = ("xdist.plugin", "pytest_asyncio.plugin", "hark.pytest_plugin")
    source = TESTS.replace("TOTALS", totals)
    shown = run(tmp_path, source, "-n", f"{processes}", "--hark-coverage", plugins=plugins)
    assert shown.count(f"order version 1: {taken}") == 1, shown
    assert ("  missed f5: Check it → end" in shown) == (not processes)
