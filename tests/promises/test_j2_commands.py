"""J2: a task is a shell command or an agent. A3, A5, A7: awakeables in a shell task. On real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hark import Hark, InvalidInput, load_job
from hark.engine.commands.lease_relay import LeaseRelay
from hark.model.values import Instance
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store

ASK = """
    id=$(hark awakeable create --title "Go {n}?") || exit $?
    echo $id >> ids
    answer=$(hark awakeable await $id) || exit $?
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in the directory of the worker."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def job(*tasks: dict[str, Any], **more: Any) -> Any:
    return load_job({"name": "work", "tasks": list(tasks), **more})


async def ended(app: Hark, definition: Any, input: Any = None) -> Instance:
    started = await app.start(definition, input)
    await until(lambda: is_ended(app, started.id), "the job to end")
    return await app.get(started.id)


async def is_ended(app: Hark, id: str) -> bool:
    await asyncio.sleep(0.05)  # the commands need the processor
    return (await app.get(id)).status in ("done", "failed", "cancelled")


async def task_status(app: Hark, id: str, name: str) -> str:
    return str((await app.get(id)).state["tasks"][name]["status"])


def lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []


def write(file: str, text: str = "") -> None:
    Path(file).write_text(text)


async def test_j2_a_command_gets_values_quoted_and_its_output_is_its_stdout(store: Store) -> None:
    nasty = 'it\'s "$HOME" `id` \\ ; {} *\n--x'
    async with Hark(store.url, **store.options) as app, app.worker():
        found = await ended(
            app,
            job(
                {"name": "plain", "run": "printf '  %s\\n\\n' {{ inputs.text }}"},
                {"name": "object", "run": """echo log >&2; echo ' {"n": [1, {"deep": true}]} '"""},
                {"name": "both", "needs": ["plain", "object"], "var": "last",
                 "run": "printf %s {{ tasks.plain.output }}{{ tasks.object.output.n[1] }}"},
                {"name": "env",
                 "run": "env | grep '^HARK_' | cut -d= -f1 | sort | xargs; echo $HARK_TASK $HARK_ATTEMPT"},
                inputs={"text": ""},
            ),
            {"text": nasty},
        )  # fmt: skip
        assert found.error is None
        variables, task = found.result.pop("env").split("\n")
        assert set(variables.split()) >= {"HARK_DB", "HARK_JOB", "HARK_TASK", "HARK_ATTEMPT", "HARK_LEASE"}
        assert task == "env 1"
        assert found.result == {
            "plain": nasty, "object": {"n": [1, {"deep": True}]}, "last": nasty + '{"deep":true}'
        }  # fmt: skip
        chunks = [event.data for event in await app.events(f"{found.id}.1") if event.type == "stream"]
        assert chunks == [{"task": "object", "chunk": "log"}]


async def test_j2_a_failed_command_is_retried_and_its_error_quotes_stderr(store: Store) -> None:
    script = "echo $HARK_ATTEMPT >> attempts; echo cause $HARK_ATTEMPT >&2; exit 3"
    async with Hark(store.url, **store.options) as app, app.worker():
        found = await ended(
            app,
            job({"name": "a", "run": script, "retry": {"limit": 2, "delay": 0.01}}, {"name": "b", "run": "kill -9 $$"}),
        )
        tasks = found.state["tasks"]
        assert found.status == "failed"
        assert lines("attempts") == ["1", "2"]
        assert tasks["a"] == {
            "status": "failed", "attempt": 2, "output": None,
            "error": "the command ended with exit code 3: cause 2",
        }  # fmt: skip
        assert tasks["b"]["error"] == "the command was ended by SIGKILL"
        assert "the command ended with exit code 3: cause 2" in str(found.error)


async def test_j2_an_agent_gets_its_prompt_model_and_context(store: Store) -> None:
    show = (
        "import json, os, sys; print(json.dumps({'argv': sys.argv[1:], 'prompt': sys.stdin.read(), "
        "'context': json.load(open(os.environ['HARK_CONTEXT']))}))"
    )
    agents = {"shower": [sys.executable, "-c", show, "--model={model}"], "plain": ["/bin/cat"]}
    async with Hark(store.url, **store.options, agents=agents) as app, app.worker():
        found = await ended(
            app,
            job(
                {"name": "first", "run": "echo one"},
                {"name": "ask", "needs": ["first"], "agent": {"type": "shower", "model": "{{ inputs.model }}"},
                 "run": "It's {{ tasks.first.output }} & {{ inputs.model }}"},
                {"name": "echo", "agent": {"type": "plain"}, "run": "just $this"},
                {"name": "missing", "agent": {"type": "shower"}, "run": "x"},
                inputs={"model": "m-1"},
            ),
        )  # fmt: skip
        tasks = found.state["tasks"]
        assert tasks["echo"]["output"] == "just $this"
        assert tasks["missing"]["error"] == (
            "the command line of the agent 'shower' contains {model}: give the task a model"
        )
        assert tasks["ask"]["output"] == {
            "argv": ["--model=m-1"],
            "prompt": "It's one & m-1",
            "context": {
                "job": found.id, "task": "ask", "attempt": 1, "iteration": 0, "type": "shower", "model": "m-1",
                "input": "one", "inputs": {"model": "m-1"}, "outputs": {"first": "one"},
            },
        }  # fmt: skip


@pytest.mark.parametrize(
    "agents",
    [
        ["x"],
        {"x": "opencode run"},
        {"x": []},
        {"x": ["a", 1]},
        {"x": [""]},
        {"": ["a"]},
        {"a:b": ["a"]},
        {"shell": ["a"]},
    ],
)
def test_j2_agents_that_cannot_be_run_are_refused(agents: Any) -> None:
    with pytest.raises(InvalidInput, match="agents"):
        Hark("sqlite://", agents=agents)


async def test_j2_a_timeout_and_a_cancel_end_the_processes_of_a_command(store: Store) -> None:
    stay = "sleep 1000 & echo $! $$ >> {}; wait"
    async with Hark(store.url, **store.options) as app, app.worker():
        late = await ended(app, job({"name": "late", "run": stay.format("late"), "timeout_sec": 1}))
        assert "timeout_sec (1 s" in str(late.error)
        long = await app.start(job({"name": "long", "run": stay.format("long")}))
        await until(lambda: lines("long"), "the second command to run")
        await app.cancel(long.id)
        # On a slow machine the second may be over before the first command has written its line.
        pids = [int(pid) for line in (*lines("late"), *lines("long")) for pid in line.split()]
        await until(lambda: not any(map(alive, pids)), "their end")


async def test_j2_the_error_of_a_timeout_quotes_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_ends(command: Any, *, on_stderr: Any, **_: Any) -> Any:
        for line in ("connecting", "no route to host"):
            await on_stderr(line)
        await asyncio.Event().wait()

    monkeypatch.setattr("hark.engine.commands.command_tasks.run_command", never_ends)
    async with Hark("sqlite://") as app, app.worker():
        late = await ended(app, job({"name": "late", "run": "unused", "timeout_sec": 0.01}))
        assert "(0.01 s of working time): connecting\nno route to host" in str(late.error)


async def test_j2_a_worker_that_stops_ends_its_commands_and_hands_their_tasks_back(store: Store) -> None:
    script = "[ -e again ] && echo $HARK_ATTEMPT && exit; touch again; sleep 1000 & echo $! $$ >> pids; wait"
    async with Hark(store.url, **store.options) as app:
        started = await app.start(job({"name": "stay", "run": script}))
        async with app.worker(grace=0):
            await until(lambda: lines("pids"), "the command to run")
        await until(lambda: not any(alive(int(pid)) for pid in lines("pids")[0].split()), "the end of its processes")
        async with app.worker():
            await until(lambda: is_ended(app, started.id), "the job to end")
        assert (await app.get(started.id)).result == {"stay": "1"}


async def test_j2_a_command_that_ended_with_the_lease_runs_again_in_the_same_attempt_if_no_other_worker_has_it(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is cut off from the database for longer than its lease, and then renews it."""
    is_cut_off = False
    renewed = LeaseRelay.renewed

    def renew(relay: LeaseRelay, seconds: float) -> None:
        if not is_cut_off:
            renewed(relay, seconds)

    monkeypatch.setattr(LeaseRelay, "renewed", renew)
    script = "[ -e go ] && echo run >> runs && echo $HARK_ATTEMPT && exit; echo run >> runs; exec sleep 1000"
    async with Hark(sqlite_store.url, lease=1.0) as app, app.worker():
        started = await app.start(job({"name": "stay", "run": script}))
        await until(lambda: lines("runs"), "the command to run")
        is_cut_off = True
        await until(lambda: not app._services.lease_relay.left(), "the lease to run out")
        write("go")
        is_cut_off = False
        await until(lambda: is_ended(app, started.id), "the job to end")
        assert (await app.get(started.id)).result == {"stay": "1"}
        assert len(lines("runs")) > 1


async def test_j2_commands_can_be_undone_mapped_and_gated(sqlite_store: Store) -> None:
    async with Hark(sqlite_store.url) as app, app.worker():
        found = await ended(
            app,
            job(
                {"name": "reserve", "run": """echo '{"seat": "it is 7"}'""",
                 "undo": "echo released {{ output.seat }} >> released"},
                {"name": "each", "type": "map", "over": ["a b", "c"], "as": "word", "run": "echo {{ word }}!"},
                {"name": "low", "needs": ["reserve"], "gate": "{{ output.score > 3 }}",
                 "run": """echo '{"score": 1}'"""},
            ),
        )  # fmt: skip
        tasks = found.state["tasks"]
        assert tasks["each"]["output"] == ["a b!", "c!"]
        assert "rejected" in tasks["low"]["error"]
        assert lines("released") == ["released it is 7"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
async def test_a3_a_shell_task_asks_twice_and_parks_until_each_answer(sqlite_store: Store) -> None:
    """A5: `create` prints the same id when the command runs again, `await` exits with 75 while there is no answer.
    One question, on both databases, is in tests/crash/test_shell_tasks.py."""
    script = "\n".join([ASK.format(n=1), ASK.format(n=2), 'echo "$answer"'])
    async with Hark(sqlite_store.url) as app, app.worker():
        started = await app.start(job({"name": "ask", "run": script}))
        asked = []
        for n in (1, 2):
            await until(lambda: is_suspended(app, started.id), "the task to be suspended")
            [one] = await app.awakeables(job=started.id, status="PENDING")
            assert (one.title, one.task, one.instance_id) == (f"Go {n}?", "ask", started.id)
            asked.append(one.id)
            await app.resolve(one.id, {"n": n})
        await until(lambda: is_ended(app, started.id), "the job to end")
        found = await app.get(started.id)
        assert (found.error, found.result) == (None, {"ask": {"n": 2}})
        assert lines("ids") == [asked[0], *asked, *asked]
        assert found.state["tasks"]["ask"]["attempt"] == 1


async def is_suspended(app: Hark, id: str) -> bool:
    if await is_ended(app, id):
        raise AssertionError((await app.get(id)).state)
    return await task_status(app, id, "ask") == "suspended"


@pytest.mark.slow
async def test_a3_an_answer_that_comes_before_the_command_suspends_itself_is_not_lost(store: Store) -> None:
    script = """
        id=$(hark awakeable create) && echo $id >> ids
        if hark awakeable await $id; then exit 0; fi
        touch asked; while [ ! -e answered ]; do sleep 0.05; done
        exit 75
    """
    async with Hark(store.url, **store.options) as app, app.worker():
        started = await app.start(job({"name": "ask", "run": script}))
        await until(lambda: Path("asked").exists(), "the question")
        await app.resolve(lines("ids")[0], "early")
        write("answered")
        await until(lambda: is_ended(app, started.id), "the job to end")
        assert (await app.get(started.id)).result == {"ask": "early"}
        assert len(set(lines("ids"))) == 1


@pytest.mark.slow
async def test_a3_a_new_attempt_asks_anew_and_exit_75_without_a_question_fails(store: Store) -> None:
    script = "id=$(hark awakeable create) && echo $id $HARK_LEASE >> ids; [ $HARK_ATTEMPT = 2 ] && exit 0; exit 1"
    async with Hark(store.url, **store.options) as app, app.worker():
        found = await ended(
            app,
            job({"name": "ask", "run": script, "retry": {"limit": 2, "delay": 0}}, {"name": "bare", "run": "exit 75"}),
        )
        tasks = found.state["tasks"]
        assert (tasks["ask"]["status"], tasks["ask"]["attempt"]) == ("completed", 2)
        assert tasks["bare"]["error"].startswith("the command ended with exit code 75, which suspends its task until")
        (first, lease), (second, _) = (line.split() for line in lines("ids"))
        assert first != second
        assert {one.status for one in await app.awakeables(job=found.id)} == {"CANCELLED"}
        # Fenced: the task does not run under this lease any more.
        done = await create_in(store, found.id, lease)
        assert done[0] == 4, done
        assert len(await app.awakeables(job=found.id)) == 2


async def test_a5_create_says_why_it_cannot_reach_a_store_in_memory() -> None:
    async with Harness() as app:
        ask, other = {"name": "ask", "run": "hark awakeable create"}, {"name": "other", "run": "echo fine"}
        started = await drained(app, app.start(job(ask, other)))
        tasks = (await app.get(started.id)).state["tasks"]
        assert tasks["other"]["output"] == "fine"
        assert "The store of this task is in memory" in tasks["ask"]["error"]


async def create_in(store: Store, run: str, lease: str) -> tuple[int, str]:
    """`hark awakeable create` as a command of this task would call it."""
    write("awakeables", "9\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hark", "awakeable", "create", "--db", store.url,
        "--schema", store.options.get("schema", "hark"),
        env={**os.environ, "HARK_JOB": run, "HARK_TASK": "ask", "HARK_LEASE": lease, "HARK_RUN_DIR": os.getcwd()},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_j2_an_output_that_is_too_large_fails_the_task(sqlite_store: Store) -> None:
    async with Hark(sqlite_store.url, max_payload=10_000) as app, app.worker():
        found = await ended(
            app,
            job(
                {"name": "big", "run": "head -c 20000 /dev/zero | tr '\\0' x"},
                {"name": "quotes", "run": "head -c 9000 /dev/zero | tr '\\0' '\"'"},
            ),
        )
        tasks = found.state["tasks"]
        assert "wrote 20000 bytes to stdout, which is its output, and 10000 are allowed" in tasks["big"]["error"]
        assert "PayloadTooLarge" in tasks["quotes"]["error"]
        assert json.dumps(tasks).count("xxxx") == 0
