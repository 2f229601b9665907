"""Every process records its definitions when it opens; two processes that do so at once do not deadlock.

A definition that is data is deployed: two deploys of one name come one after the other.
"""

import pytest

from hark.kernel.requests import DefinitionRow, Deploy, Register, StartInstances
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidDefinition, NotFound
from hark.store.protocol import Conflicted
from tests.support.stage import Duel, Race, Stage, part, race

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _register(*names: str) -> Register:
    return Register(rows=[DefinitionRow(name, 1, "machine", "default", "start") for name in names])


async def test_two_processes_that_register_in_different_orders_do_not_deadlock(stage: Stage) -> None:
    async def prepare() -> Race:
        yield Duel(part(_register("a"), _register("b", "c"), _register("a")), part(_register("c", "b"), _register("a")))

    await stage.explore(prepare, deep=True, every=True)
    names = await stage.eye.fetch("SELECT name FROM definitions WHERE name IN ('a', 'b', 'c') ORDER BY name")
    assert [row[0] for row in names] == ["a", "b", "c"]


def _deploy(digest: str, name: str = "etl") -> Deploy:
    return Deploy(name=name, kind="job", source="{}", digest=digest)


async def _forget(stage: Stage) -> None:
    await stage.eye.execute("DELETE FROM definitions WHERE kind = 'job'")
    for side in (stage.one, stage.two):
        side.catalog.pop("etl", None)


@pytest.mark.parametrize("same", [True, False])
@race(deep=True)
async def test_two_deploys_of_one_name_give_one_version_for_each_source(stage: Stage, same: bool) -> Race:
    await _forget(stage)
    one, two = _deploy("a"), _deploy("a" if same else "b")
    yield Duel(part(one, _deploy("z", "another")), part(two))
    assert sorted((one.result, two.result)) == ([1, 1] if same else [1, 2])
    found = await stage.eye.fetch("SELECT version, digest FROM definitions WHERE name = 'etl'")
    assert len(found) == len({one.result, two.result})
    assert {row["version"]: row["digest"] for row in found} == {one.result: one.digest, two.result: two.digest}


@race(deep=True)
async def test_a_start_while_the_definition_is_undeployed_starts_or_is_refused(stage: Stage) -> Race:
    await _forget(stage)
    await stage.one.run(_deploy("a"))
    start = StartInstances(items=[NewInstance("etl", "{}", "one", named=True)])
    yield Duel(part(Deploy(name="etl", remove=True)), part(start))
    rows = (await stage.content()).instances
    [result] = start.result
    assert ("one" in rows) == (result == "one")
    assert result == "one" or "undeployed" in str(result)
    after = StartInstances(items=[NewInstance("etl", "{}", "two", named=True, version=1)])
    await stage.two.run(after)
    assert isinstance(after.result[0], NotFound)


@pytest.mark.parametrize("deploy_first", [True, False])
async def test_a_deploy_and_code_of_the_same_name_do_not_overwrite_each_other(stage: Stage, deploy_first: bool) -> None:
    await _forget(stage)
    deploy, register = _deploy("a"), _register("etl")
    ours, theirs = stage.one.act(part(deploy)), stage.two.act(part(register))
    await (ours.before("set_undeployed") if deploy_first else theirs.before("commit"))
    lead, follow = (ours, theirs) if deploy_first else (theirs, ours)
    assert await follow.run() == "blocked"
    await lead.finish()
    if deploy_first:
        await follow.finish()
        assert isinstance(register.result, InvalidDefinition)
    else:
        with pytest.raises(Conflicted):
            await follow.finish()
        await stage.one.run(deploy)  # as the clerk does
        assert isinstance(deploy.result, InvalidDefinition)
    [[kind]] = await stage.eye.fetch("SELECT kind FROM definitions WHERE name = 'etl'")
    assert kind == ("job" if deploy_first else "machine")
    await stage.eye.execute("DELETE FROM definitions WHERE name = 'etl'")
