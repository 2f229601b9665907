"""Definitions that are data are deployed under versions of their name, and undeployed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hark.kernel.requests import DefinitionRow, Deploy, DeployGroup, Register, StartInstances
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidDefinition, NotFound
from tests.promises.support_signals import Turns, rows
from tests.support.stores import Store
from tests.support.turns import ask


@pytest.fixture
async def turns(store: Store) -> AsyncIterator[Turns]:
    async with Turns(store) as turns:
        yield turns


def deploy(name: str, digest: str, **more: Any) -> Deploy:
    return Deploy(**{"name": name, "kind": "job", "source": f'"{digest}"', "digest": digest, **more})


async def start(turns: Turns, id: str, version: int | None = None) -> Any:
    [[started]] = await ask(turns, StartInstances(items=[NewInstance("etl", "{}", id, named=True, version=version)]))
    return started


async def test_a_new_source_is_a_new_version_and_the_same_source_is_not(turns: Turns) -> None:
    assert await ask(turns, deploy("etl", "a")) == [1]
    assert await ask(turns, deploy("etl", "a"), deploy("etl", "b"), deploy("etl", "b"), deploy("other", "b")) == [
        1, 2, 2, 1,
    ]  # fmt: skip
    assert await ask(turns, deploy("etl", "a")) == [3]  # only the newest one counts
    assert await rows(turns.made_for, "SELECT version, source FROM definitions WHERE name = 'etl' ORDER BY 1") == [
        (1, '"a"'), (2, '"b"'), (3, '"a"'),
    ]  # fmt: skip


async def test_a_start_in_the_turn_of_the_deploy_gets_the_new_version(turns: Turns) -> None:
    await turns.run(deploy("etl", "a"))
    starting = StartInstances(items=[NewInstance("etl", "{}", "one", named=True)])
    await turns.run(starting, deploy("etl", "b"))
    assert starting.result == ["one"]
    assert await rows(turns.made_for, "SELECT version, lane, queue, step FROM instances") == [
        (2, "job", "hark.graphs", "start")
    ]


async def test_an_undeployed_definition_cannot_be_started_by_any_process_until_it_is_deployed_again(
    turns: Turns,
) -> None:
    async with Turns(turns.made_for) as other:
        await turns.run(deploy("etl", "a"))
        assert await start(other, "one", version=1) == "one"  # the other process knows the definition now
        assert await ask(turns, Deploy(name="etl", remove=True)) == [1]
        for process in (turns, other):
            for version in (None, 1):
                refused = await start(process, "two", version)
                assert isinstance(refused, NotFound)
                assert "undeployed" in str(refused)
        assert await ask(turns, deploy("etl", "a")) == [1]
        assert await start(other, "two", version=1) == "two"
        assert await ask(turns, Deploy(name="etl", remove=True), deploy("etl", "b")) == [1, 2]
        assert await start(other, "three") == "three"


async def test_what_is_not_there_or_is_code_cannot_be_undeployed(turns: Turns) -> None:
    await turns.register("M")
    [missing, code] = await ask(turns, Deploy(name="etl", remove=True), Deploy(name="M", remove=True))
    assert isinstance(missing, NotFound)
    assert isinstance(code, InvalidDefinition)


@pytest.mark.parametrize("kind", ["job", "bpmn"])
async def test_code_and_deployed_definitions_do_not_take_each_others_names(turns: Turns, kind: str) -> None:
    await turns.register("M")
    [refused, fine] = await ask(turns, deploy("M", "a", kind=kind), deploy("etl", "a", kind=kind))
    assert isinstance(refused, InvalidDefinition)
    assert fine == 1
    rows_of_code = [
        DefinitionRow("etl", 1, "machine", "default", "s"),
        DefinitionRow("N", 1, "machine", "default", "s"),
    ]
    [refused, fine] = await ask(turns, Register(rows=rows_of_code), Register(rows=rows_of_code[1:]))
    assert isinstance(refused, InvalidDefinition)
    assert fine == []  # no code has changed
    found = await rows(turns.made_for, "SELECT name, kind FROM definitions ORDER BY name")
    assert [tuple(row) for row in found] == [("M", "machine"), ("N", "machine"), ("etl", kind)]


async def test_workers_record_their_definitions_again_and_again(turns: Turns) -> None:
    for _ in range(2):
        [result] = await ask(turns, Register(rows=[DefinitionRow("M", 1, "machine", "default", "start")]))
        assert result == []


async def test_b2_definitions_of_one_file_are_deployed_together_or_not_at_all(turns: Turns) -> None:
    await turns.register("M")
    broken = DeployGroup(deploys=[deploy("a", "1"), deploy("M", "1"), deploy("b", "1")])
    [refused] = await ask(turns, broken)
    assert isinstance(refused, InvalidDefinition)
    assert await rows(turns.made_for, "SELECT name FROM definitions WHERE kind = 'job'") == []
    file = [deploy("a", "1"), deploy("b", "1")]
    assert await ask(turns, DeployGroup(deploys=file), broken, deploy("a", "2")) == [[1, 1], broken.result, 2]
    assert isinstance(broken.result, InvalidDefinition)
    assert await ask(turns, DeployGroup(deploys=file)) == [[3, 1]]
    assert await ask(turns, DeployGroup()) == [[]]


async def test_b2_deploys_are_carried_out_in_the_order_of_the_calls(turns: Turns) -> None:
    group = DeployGroup(deploys=[deploy("etl", "a")])
    assert await ask(turns, group, Deploy(name="etl", remove=True)) == [[1], 1]
    assert isinstance(await start(turns, "one"), NotFound)
    assert await ask(turns, Deploy(name="etl", remove=True), group) == [1, [1]]
    assert await start(turns, "one") == "one"
