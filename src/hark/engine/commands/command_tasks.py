"""CommandProgram: runs the tasks that are shell commands or agents (J2).

A command is a handler like any other (`programs/jobs/tasks/task_program.py`): retries, gates, timeouts and parks are
the same. What is its own: the command line is rendered from the job, stdout is the output, lines of stderr are the
stream of the task, and exit code 75 parks the task on the awakeables that it has created with `hark awakeable create`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hark.engine.commands.command_lanes import CommandStore
from hark.engine.commands.environment import run_directory, task_environment
from hark.engine.commands.output import SUSPEND, failure_text, output_of, with_stderr
from hark.engine.commands.runner import MAX_TAIL, CommandLine, CommandNotRun, run_command
from hark.model import json
from hark.model.decisions import Arm
from hark.model.errors import StoreUnavailable
from hark.model.notes import NoteInbox, NoteWait
from hark.model.task_lease import lease_text
from hark.programs.functions.branches import Suspended
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_variables import template_of
from hark.programs.jobs.tasks.task_context import TaskContext
from hark.programs.jobs.tasks.task_data import TaskData, load_data
from hark.programs.jobs.tasks.task_outcomes import Fail
from hark.programs.jobs.tasks.task_program import TaskProgram
from hark.programs.jobs.tasks.task_session import TaskSession

_MODEL = "{model}"
_LEASE_CHECK = 0.1  # seconds
_NOTHING_OPEN = (
    "the {what} ended with exit code 75, which suspends its task until an awakeable of the task is settled, and the "
    "task has none that is open: create one with `hark awakeable create`, or use another exit code"
)


def _why_not_run(line: CommandLine, error: CommandNotRun) -> str:
    """The reason; of a command that is not in the PATH, the system would name the first directory of the PATH."""
    if shutil.which(line.argv[0], path=line.env.get("PATH")) is None:
        return f"the worker has no command {line.argv[0]!r} (in its PATH, or at this path)"
    return str(error)


class CommandContext(TaskContext):
    """The context of a command: that of a handler, the rendered `run:` and model of the task, and the end of stderr."""

    def __init__(self, session: TaskSession, data: TaskData, text: str, model: str | None) -> None:
        super().__init__(session, data)
        self.session = session
        self.text = text
        self.model = model
        self.stderr_tail = ""


class CommandProgram(TaskProgram):
    """Runs the lane of shell commands or, with `argv`, that of a type of agent."""

    def __init__(self, store: CommandStore, agent: str | None = None, argv: Sequence[str] = ()) -> None:
        super().__init__(agent or "shell", self._execute)
        self._store = store
        self._agent = agent
        self._argv = argv
        self._what = "command" if agent is None else "agent"

    async def _context(self, session: TaskSession, graph: JobGraph) -> TaskContext:
        task = graph.tasks[session.state.task]
        template = template_of((task.undo if session.state.undo else task.run) or "")
        model = None if task.agent is None or task.agent.model is None else template_of(task.agent.model)
        templates = [template] if model is None else [template, model]
        data = await load_data(session.state, graph, session.services, templates)
        more = {**data.more, "output": data.input} if session.state.undo else data.more
        variables = data.scope.variables(*templates, **more)
        text = template.render_shell(variables) if self._agent is None else template.render_text(variables)
        return CommandContext(session, data, text, None if model is None else str(model.render_text(variables)))

    async def _call(self, session: TaskSession, context: TaskContext) -> Any:
        try:
            return await super()._call(session, context)
        except TimeoutError as error:
            assert isinstance(context, CommandContext)
            raise TimeoutError(with_stderr(str(error), context.stderr_tail)) from error.__cause__

    async def _execute(self, task: Any) -> Any:
        assert isinstance(task, CommandContext)
        session = task.session
        limit = session.services.max_payload

        async def stream(line: str) -> None:
            task.stderr_tail = f"{task.stderr_tail}\n{line}"[-MAX_TAIL:]
            await session.stream(json.dump(line.replace("\0", "\ufffd")))

        if self._agent is not None and task.model is None and any(_MODEL in word for word in self._argv):
            return Fail(f"the command line of the agent {self._agent!r} contains {_MODEL}: give the task a model")
        while True:
            with run_directory(session.state.period) as directory:
                line = self._command_line(task, directory)
                try:
                    end = await run_command(line, max_stdout=limit, on_stderr=stream, lease=self._store.lease)
                except CommandNotRun as error:
                    return Fail(f"the {self._what} could not be run: {_why_not_run(line, error)}")
            if not end.lease_lost:
                break
            await self._until_leased(session)
        failure = failure_text(end, self._what, max_stdout=limit)
        if failure is not None:
            return Fail(failure)
        if end.exit == SUSPEND:
            return await self._suspend(session)
        return output_of(end.stdout)

    def _command_line(self, task: CommandContext, directory: Path) -> CommandLine:
        claim = task.session.claim
        context = directory / "context.json" if self._agent is not None else None
        env = task_environment(
            os.environ,
            url=self._store.url(),
            schema=self._store.schema(),
            job=task.run_id,
            task=task.name,
            attempt=task.attempt,
            lease=lease_text(claim.id, claim.epoch),
            directory=directory,
            context=context,
        )
        if context is None:
            return CommandLine(["/bin/sh", "-c", task.text], env, scratch=str(directory))
        context.write_bytes(msgspec.json.encode(self._context_of(task)))
        argv = [word.replace(_MODEL, task.model or "") for word in self._argv]
        return CommandLine(argv, env, stdin=task.text.encode(), scratch=str(directory))

    def _context_of(self, task: CommandContext) -> dict[str, Any]:
        """The context of an agent, which is the content of the file that `HARK_CONTEXT` names."""
        return {
            "job": task.run_id,
            "task": task.name,
            "attempt": task.attempt,
            "iteration": task.iteration,
            "type": self._agent,
            "model": task.model,
            "input": task.input,
            "inputs": task.inputs,
            "outputs": task.outputs,
        }

    async def _until_leased(self, session: TaskSession) -> None:
        """Wait until the worker has renewed its lease: the command had to end because it could not in time. A lost
        lease is not an attempt: if no other worker has taken the task, the command runs again.

        Raises:
            TaskLost: Another worker has it, or it was cancelled.
        """
        claim, lease = session.claim, self._store.lease
        while True:
            while not lease.left():
                await asyncio.sleep(_LEASE_CHECK)
            try:
                await session.note(NoteInbox(claim.id, claim.epoch, after=claim.read_to))
                return
            except StoreUnavailable:
                await asyncio.sleep(_LEASE_CHECK)

    async def _suspend(self, session: TaskSession) -> Fail:
        """Park the task on its open awakeables. One that was settled while the command ran wakes it at once."""
        claim = session.claim
        wanted = await self._store.open_awakeables(claim.id)
        arrived = await session.note(NoteInbox(claim.id, claim.epoch, after=claim.read_to))
        for row in arrived:
            session.waits.arrived(row)
        wanted += [row.name for row in arrived if row.kind == "awakeable"]
        if not wanted:
            return Fail(_NOTHING_OPEN.format(what=self._what))
        for id in dict.fromkeys(wanted):
            wait, is_new = session.waits.ask("awakeable", id, None, session.services.micros())
            if is_new:
                arm = Arm("awakeable", wait.id, wait.place, id)
                row = await session.note(NoteWait(claim.id, claim.epoch, arm=arm))
                wait.deadline = arm.deadline
                if row is not None:
                    session.waits.arrived(row)
        session.suspend()
        raise Suspended
