"""B2: what can be deployed, under which names and versions, and what starts instances of it."""

from pathlib import Path

import pytest

from hark import InvalidDefinition, InvalidInput, NoTarget, NotFound
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.bpmn_files import BY_MESSAGE, BY_SIGNAL, END, LISTENED, ORDER, START, bpmn, process, started_by
from tests.support.stores import Store


async def deployed(app: Harness) -> list[str]:
    """The names that can be started."""
    from hark.app.door_access import DoorAccess

    found = await DoorAccess(app).startable(limit=100)
    return [one.name for one in found if one.kind == "bpmn"]


async def test_b2_a_file_is_deployed_by_path_by_text_and_by_bytes(store: Store, tmp_path: Path) -> None:
    async with harness(store) as app:
        for n, name in enumerate(("order.bpmn", "order.bpmn20.xml", "ORDER.XML", "order.txt"), start=1):
            path = tmp_path / name
            path.write_text(ORDER.replace("Approve it", f"Approve {n}"), "utf-8")
            assert await app.deploy(path) == [("order", n)]
            assert await app.deploy(str(path)) == [("order", n)]  # the same text is no new version
        assert await app.deploy(ORDER) == [("order", 5)]
        assert await app.deploy(f"\ufeff{ORDER}") == [("order", 5)]
        assert await app.deploy(f"\ufeff{ORDER}".encode()) == [("order", 5)]
        assert await app.deploy(ORDER.replace("UTF-8", "UTF-16").encode("utf-16")) == [("order", 6)]


async def test_b2_a_text_may_begin_with_line_breaks_and_problems_have_its_lines() -> None:
    broken = ORDER.replace('targetRef="end"', 'targetRef="ende"')
    async with Harness() as app:
        for text in (broken, f"\n\n  {broken}", f"\n{broken.partition('?>')[2]}"):
            with pytest.raises(InvalidDefinition) as refused:
                await app.deploy(text)
            [problem] = refused.value.problems
            assert "ende" in text.splitlines()[problem.line - 1]
            assert await app.deploy(text.replace("ende", "end"))


async def test_b2_a_text_that_an_older_version_had_is_a_new_version(store: Store) -> None:
    other = ORDER.replace("Approve it", "Approve")
    async with harness(store) as app:
        assert await app.deploy(ORDER) == [("order", 1)]
        assert await app.deploy(other) == [("order", 2)]
        assert await app.deploy(other) == [("order", 2)]
        assert await app.deploy(ORDER) == [("order", 3)]


async def test_b2_all_processes_of_a_file_are_deployed_or_none(store: Store) -> None:
    both = bpmn(process("first", START, END), process("release", START, END), process("no", START, executable=False))
    async with harness(store) as app:
        await app.deploy("name: release\ntasks:\n  - {name: build, run: make}\n")
        with pytest.raises(InvalidDefinition, match="'release' is the name of a job"):
            await app.deploy(both)
        assert await deployed(app) == []
        assert await app.deploy(both.replace('"release"', '"second"')) == [("first", 1), ("second", 1)]
        assert await deployed(app) == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<definitions/>", "BPMN"),
        ("<definitions", "XML"),
        (bpmn(), "process"),
        (bpmn(process("order", START, '<userTask id="a"/>') + "<process"), "XML"),
        (b"<\xff\xfe\x00", "UTF-8"),
    ],
)
async def test_b2_what_is_not_bpmn_is_refused_and_nothing_is_stored(text: str | bytes, says: str) -> None:
    async with Harness() as app:
        with pytest.raises(InvalidDefinition) as refused:
            await app.deploy(text)
        assert refused.value.problems
        assert says.lower() in str(refused.value).lower()
        assert await deployed(app) == []


async def test_b2_a_file_that_ends_in_bpmn_is_never_read_as_a_job(tmp_path: Path) -> None:
    path = tmp_path / "release.bpmn"
    path.write_text("name: release\ntasks:\n  - {name: build, run: make}\n", "utf-8")
    async with Harness() as app:
        with pytest.raises(InvalidDefinition):
            await app.deploy(path)
        with pytest.raises(FileNotFoundError):
            await app.deploy(tmp_path / "missing.bpmn")
        for wrong in (None, 3, [ORDER], ""):
            with pytest.raises(InvalidInput, match="deploy takes a path"):
                await app.deploy(wrong)  # type: ignore[arg-type]


async def test_b3_a_signal_start_event_starts_an_instance_per_broadcast_until_it_is_undeployed(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(BY_SIGNAL)
        assert await app.broadcast("alarm", {"level": 3}) == 1
        [one] = await app.list(kind="bpmn")
        assert (one.definition, one.state) == (
            "triggered", {"variables": {"level": 3}, "tokens": [], "incidents": []},
        )  # fmt: skip
        await app.deploy(BY_SIGNAL.replace('name="alarm"', 'name="fire"'))
        assert await app.broadcast("alarm") == 0
        assert await app.broadcast("fire", "no object") == 1
        assert [one.state["variables"] for one in await app.list(kind="bpmn")] == [{}, {"level": 3}]
        await app.undeploy("triggered")
        assert await app.broadcast("fire") == 0
        assert await app.waits() == []  # a start event is not a wait


async def test_b4_a_message_start_event_starts_an_instance_with_the_key_of_the_message(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(BY_MESSAGE)
        order = await app.message("order-placed", "order-42", {"total": 3})
        found = await app.get("order-42")
        assert (found.id, found.state["variables"]) == (order.id, {"total": 3})
        await app.undeploy("triggered")
        with pytest.raises(NoTarget):
            await app.message("order-placed", "order-43")


async def test_b4_a_timer_start_event_starts_an_instance_when_it_is_due(store: Store) -> None:
    text = started_by("timer", "><timeDuration>PT1H</timeDuration></timerEventDefinition>", "")
    async with harness(store) as app:
        await app.deploy(text)
        await app.advance(3599)
        assert await app.list(kind="bpmn") == []
        await app.advance(1)
        assert [one.state["variables"] for one in await app.list(kind="bpmn")] == [{}]


async def test_b3_the_name_of_a_start_event_is_evaluated_without_variables() -> None:
    async with Harness() as app:
        await app.deploy(BY_SIGNAL.replace('name="alarm"', "name=\"${'al' + 'arm'}\""))
        assert await app.broadcast("alarm") == 1
        with pytest.raises(InvalidDefinition) as refused:
            await app.deploy(BY_SIGNAL.replace('name="alarm"', 'name="${what}"').replace("triggered", "other"))
        [problem] = refused.value.problems
        assert problem.element == "trigger"
        assert problem.line is not None
        assert await app.broadcast("alarm") == 1, "what was deployed before stays"


async def test_b2_a_process_starts_with_an_object_and_only_if_it_has_a_start_event_without_a_trigger(
    store: Store,
) -> None:
    async with harness(store) as app:
        await app.deploy(ORDER)
        await app.deploy(BY_SIGNAL)
        order = await app.start("order", {"total": 3}, correlation_key="order-42")
        before = await order.get()
        assert (before.kind, before.version) == ("bpmn", 1)
        assert before.state == {"variables": {"total": 3}, "tokens": [], "incidents": []}
        assert (await (await app.start("order")).get()).state["variables"] == {}
        for wrong in ([1], "text", 3):
            with pytest.raises(InvalidInput, match="object"):
                await app.start("order", wrong)
        with pytest.raises(InvalidInput, match="alarm"):
            await app.start("triggered", {})
        with pytest.raises(InvalidInput, match="Leave out step"):
            await app.start("order", {}, step="approve")
        for refused in (("order", [1]), ("triggered", {})):
            with pytest.raises(InvalidInput):
                await app.start_many([("order", {}), refused])
            with pytest.raises(InvalidInput):
                await app.schedule("hourly", *refused, every=3600)
        assert len(await app.list(kind="bpmn")) == 2, "a refused start_many starts nothing"
        await app.undeploy("order")
        with pytest.raises(NotFound, match="undeployed"):
            await app.start("order")
        with pytest.raises(NotFound):
            await app.undeploy("nothing")
        assert (await app.get("order-42")).status == "runnable"  # it finishes


async def test_b2_listeners_are_refused_unless_extensions_are_ignored() -> None:
    async with Harness() as app:
        with pytest.raises(InvalidDefinition) as refused:
            await app.deploy(LISTENED)
        assert [problem.element for problem in refused.value.problems] == ["approve"]
        assert await app.deploy(LISTENED, ignore_extensions=True) == [("order", 1)]
