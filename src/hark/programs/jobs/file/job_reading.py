"""Read the tree of a job file into its spec, with every mistake on the way.

A task that has mistakes is still compared with the others by its name, so that one check of a file shows all that is
wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hark.model.cron import check_timing
from hark.model.errors import InvalidInput
from hark.model.problem import ProblemList
from hark.programs.jobs.file.file_tree import TreeNode
from hark.programs.jobs.file.keys import DEFAULT_KEYS, JOB_KEYS, NEEDED_BY_TYPE, RUNNING, TASK_KEYS, Reporter, read_keys
from hark.programs.jobs.file.kinds import LaneName, Wrong
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, TaskSpec


@dataclass
class TaskDraft:
    """A task as it was read: the spec is None if it has mistakes of its own."""

    element: str
    node: TreeNode
    is_finally: bool
    name: str | None = None
    needs: tuple[str, ...] = ()
    spec: TaskSpec | None = None

    def at(self, key: str) -> TreeNode:
        """The node of a key, or that of the whole task."""
        found = self.node.value.get(key) if isinstance(self.node.value, dict) else None
        return found if isinstance(found, TreeNode) else self.node


@dataclass
class JobDraft:
    """A job as it was read, with the problems that were found."""

    node: TreeNode
    tasks: list[TaskDraft] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    problems: ProblemList = field(default_factory=ProblemList)

    def report(self, element: str | None, line: int | None, message: str) -> None:
        """Keep a problem, once. Raises TooManyProblems if there are enough to show."""
        self.problems.report(element, line, message)

    def spec(self) -> JobSpec:
        """The spec, if no problem was found."""
        tasks = tuple(task.spec for task in self.tasks if task.spec is not None)
        return JobSpec(tasks=tasks, **self.fields)


def read_draft(draft: JobDraft) -> None:
    """Read a whole job. Raises TooManyProblems."""
    root = draft.node
    fields = read_keys(root, JOB_KEYS, "the job", lambda line, message: draft.report(None, line, message))
    if fields is None:
        return
    defaults = fields.pop("defaults", {})
    tasks, last = fields.pop("tasks", None), fields.pop("finally_", None)
    _check_schedule(draft, fields)
    draft.fields = fields
    if tasks == []:
        draft.report(None, root.value["tasks"].line, "tasks is empty. Give the job at least one task.")
    for key, nodes in (("tasks", tasks), ("finally", last)):
        for number, node in enumerate(nodes or []):
            draft.tasks.append(_read_task(draft, node, f"{key}[{number}]", defaults, key == "finally"))


def _check_schedule(draft: JobDraft, fields: dict[str, Any]) -> None:
    schedule = fields.get("schedule")
    if schedule is None:
        return
    line = draft.node.value["schedule"].line
    if (schedule.cron is None) == (schedule.every is None):
        draft.report(None, line, "schedule needs either `cron` or `every`.")
        return
    try:
        check_timing(schedule.cron, schedule.every, schedule.timezone)
    except InvalidInput as error:
        draft.report(None, line, f"schedule: {error}")


def _read_task(draft: JobDraft, node: TreeNode, place: str, defaults: dict[str, Any], is_finally: bool) -> TaskDraft:
    name = node.value.get("name") if isinstance(node.value, dict) else None
    known = name.value if name is not None and isinstance(name.value, str) and name.value else None
    task = TaskDraft(known or place, node, is_finally, name=known)
    is_wrong = False

    def report(line: int | None, message: str) -> None:
        nonlocal is_wrong
        is_wrong = True
        draft.report(task.element, line, message)

    fields = read_keys(node, TASK_KEYS, "the task", report)
    if fields is None:
        return task
    task.needs = fields.get("needs", ())
    kind = fields.get("type", "task")
    if "type" in fields or "type" not in node.value:
        _check_type(node, kind, report)
    if not is_wrong:
        task.spec = TaskSpec(**_with_defaults(fields, kind, defaults), is_finally=is_finally)
    return task


def _check_type(node: TreeNode, kind: str, report: Reporter) -> None:
    """Report keys of a task that do not belong to its type, and missing keys that its type needs."""
    given = node.value
    for key, inner in given.items():
        if key in TASK_KEYS and kind not in TASK_KEYS[key].types:
            report(inner.line, f"{key} {_belongs(key, kind)}")
    for key in NEEDED_BY_TYPE.get(kind, ()):
        if key not in given:
            report(node.line, f"A task of type {kind} needs the key {key!r}.")
    if kind in RUNNING:
        _check_work(node, kind, report)
    if kind == "approval" and "title" not in given and "description" not in given:
        report(node.line, "An approval needs a title: what the answerer is asked.")


def _belongs(key: str, kind: str) -> str:
    if key == "timeout" and kind in RUNNING:
        return "belongs to approval and wait_for_event; the limit of a task's attempt is timeout_sec."
    if key == "run" and kind == "loop":
        return "does not belong to a loop: only a handler can return task.continue_(…). Give it a handler."
    types = TASK_KEYS[key].types
    return f"belongs to type {' or '.join(types)}; this task has type {kind}."


def _check_work(node: TreeNode, kind: str, report: Reporter) -> None:
    """Report a task that does not have exactly one thing that does the work."""
    given = node.value
    if kind != "loop" and "handler" in given and "run" in given:
        report(given["run"].line, "A task has a handler or a command to run, not both. Remove one of them.")
    if kind != "loop" and "handler" in given and "agent" in given:
        report(given["agent"].line, "A task has a handler or an agent, not both. Remove one of them.")
    if "agent" in given and "run" not in given:
        report(node.line, "An agent needs the key 'run': the prompt.")
    has_unknown_key = not given.keys() <= TASK_KEYS.keys()  # which may be a misspelt `run`, and is reported
    if kind != "loop" and not {"handler", "run", "agent"} & given.keys() and not has_unknown_key:
        report(node.line, "The task does nothing: give it a `handler`, a command to `run`, or an `agent` with `run`.")
    if "undo" in given and "agent" in given:
        report(given["undo"].line, "An agent's task cannot have an undo. Undo it in a task of its own.")
    if "undo" in given and "handler" in given and isinstance(given["undo"].value, str):
        try:
            LaneName("handler").read(given["undo"], "undo")
        except Wrong as wrong:
            report(wrong.line, wrong.message)
    if "heartbeat_sec" in given and "handler" not in given:
        report(given["heartbeat_sec"].line, "heartbeat_sec is for handlers: a command sends no heartbeats.")


def _with_defaults(fields: dict[str, Any], kind: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task, completed from `defaults:` with what its type can have."""
    usual = {
        name: value
        for name, value in defaults.items()
        if kind in DEFAULT_KEYS[name].types and not (name == "heartbeat_sec" and "handler" not in fields)
    }
    whole = {**usual, **fields, **(fields["gate"]._asdict() if "gate" in fields else {})}
    if "retry" in whole:
        whole["retry"] = RetrySpec(**{**usual.get("retry", {}), **fields.get("retry", {})})
    return whole
