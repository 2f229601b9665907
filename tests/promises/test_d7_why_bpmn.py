"""D7: why a process waits: where its tokens rest, its incidents, and service tasks whose handler no worker has."""

import asyncio
import subprocess
import sys
from pathlib import Path

from hark.testing import Harness
from hark.views import health
from tests.doors.support_cli import run_cli, store_options
from tests.promises.support_machines import harness
from tests.support.bpmn_files import APPROVE, START, bpmn, process
from tests.support.harness import drained
from tests.support.stores import Store, sqlite_file

PAY = '<serviceTask id="pay" name="Pay back" camunda:type="external" camunda:topic="pay-back"/>'
SPLIT = '<parallelGateway id="split"/>'
MORE = f'{PAY}<sequenceFlow id="g1" sourceRef="split" targetRef="pay"/>'
BOTH = bpmn(process("refund", START, SPLIT, APPROVE, more=MORE))
"""A person approves while a handler pays."""


async def stuck(app: Harness) -> str:
    """A refund whose handler has failed for good; the id of the instance."""

    @app.handler("pay-back")
    async def pay(task: object) -> None:
        raise ValueError("no money")

    await app.deploy(BOTH)
    refund = await drained(app, app.start("refund", {"amount": 20}, correlation_key="refund-7"))
    for _ in range(3):
        await drained(app, app.advance(3600))
    return refund.id


async def test_d7_a_process_says_where_its_tokens_are_and_which_handler_is_missing(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(BOTH)
        refund = await drained(app, app.start("refund", {"amount": 20}))
        assert (await refund.get()).status == "awaiting_children"
        why = await app.why(refund)
        assert "Tokens rest at 'Approve it' (approve) and 'Pay back' (pay)." in why.text
        [missing] = [blocker for blocker in why.blockers if "Pay back" in blocker.text]
        assert missing.reason == "no_worker"
        assert missing.text.startswith(f"'Pay back' (pay), {refund.id}.")
        assert "No worker has the handler 'pay-back'." in why.text
        notes = {wait.kind: wait.note for wait in why.waits}
        assert notes["awakeable"] == "at 'Approve it' (approve): Approve it"
        assert "have not ended" in (notes["children"] or "")


async def test_d7_an_incident_of_a_live_process_says_how_to_go_on(store: Store) -> None:
    async with harness(store) as app:
        id = await stuck(app)
        refund = await app.get(id)
        assert refund.status == "awaiting_signal", "its child has ended, and it waits for the person"
        assert [wait.kind for wait in refund.waits] == ["awakeable"]
        why = await app.why(id)
        assert "Incident at 'Pay back' (pay): ValueError: no money." in why.text
        assert f"run `hark instance retry {id}`." in why.text
        assert [blocker.reason for blocker in why.blockers] == ["no_worker", "incident"]  # a Harness has no worker
        assert "children" not in {wait.kind for wait in why.waits}, "no child is left to wait for"


async def test_d7_a_wait_for_children_is_listed_only_while_the_process_has_children(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(BOTH)
        refund = await drained(app, app.start("refund", {"amount": 20}))
        assert sorted(wait.kind for wait in await app.waits()) == ["awakeable", "children"]
        await drained(app, app.cancel(refund))
        await stuck(app)
        assert [wait.kind for wait in await app.waits()] == ["awakeable"]
        assert await app.waits(kind="children") == []
        assert (await app._read(health.facts))["oldest_wait"]["kind"] == "awakeable"


def test_d7_the_command_line_shows_incidents_and_the_command_that_resumes_them(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)

    async def prepare() -> str:
        async with harness(store) as app:
            return await stuck(app)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        id = runner.run(prepare())
    options = store_options(store)
    shown = run_cli("instance", "show", "refund-7", *options).out
    assert "tokens           approve, pay\n" in shown
    assert "incident         pay: ValueError: no money (since " in shown
    assert f"resume           hark instance retry {id} --db" in shown
    assert "Incident at 'Pay back' (pay)" in run_cli("instance", "why", "refund-7", *options).out


def test_nothing_of_bpmn_is_loaded_before_a_process_is() -> None:
    code = """
import sys
from hark import Done, Hark, Machine, step

class Greet(Machine):
    @step
    def start(self, ctx):
        return Done("hello")

app = Hark("sqlite://")
with app, app.worker():
    app.start(Greet).result().result(timeout=60).result()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90)
    parts = ("hark.programs.bpmn.file", "hark.programs.bpmn.interpreter", "hark.programs.expressions")
    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith(parts) or name == "hark.programs.bpmn.bpmn_spec"] == []
