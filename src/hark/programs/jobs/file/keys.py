"""The keys of a job file: the one description from which files are checked and the JSON Schema is made.

`Record` reads a mapping by such a table: it reports unknown keys with the nearest known one, repeated keys and wrong
values, all of them at once. What several keys mean together (needs, cycles, templates) is checked in job_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, get_args

from hark.model.nearest import did_you_mean
from hark.model.trigger import MAX_CATCH_UP
from hark.programs.jobs.file.file_tree import TreeNode
from hark.programs.jobs.file.kinds import (
    AnswerSchema,
    AnyJson,
    Choice,
    ConditionText,
    InputDefaults,
    ItemName,
    LaneName,
    ListOrTemplate,
    Name,
    Names,
    Number,
    RateLimit,
    Seconds,
    Text,
    TimeZone,
    TruthValue,
    ValueKind,
    Whole,
    Wrong,
    described,
)
from hark.programs.jobs.job_graph import APPROVAL_GATE
from hark.programs.jobs.job_spec import AgentSpec, QuestionSpec, RegressSpec, ScheduleSpec, TaskType, When

TYPES: tuple[str, ...] = get_args(TaskType)
RUNNING = ("task", "loop", "map")  # the types that run a handler or a command
MAX_TASKS = 10_000


class Reporter(Protocol):
    """The receiver of the mistakes that a reader finds."""

    def __call__(self, line: int | None, message: str) -> None: ...


@dataclass(frozen=True)
class Key:
    """A key: the kind of its value, its meaning, and the types of tasks that have it."""

    kind: ValueKind
    meaning: str
    types: tuple[str, ...] = TYPES
    required: bool = False
    field: str | None = None  # of the spec, if it has another name

    def field_of(self, key: str) -> str:
        return self.field or key


def read_keys(node: TreeNode, keys: Mapping[str, Key], where: str, report: Reporter) -> dict[str, Any] | None:
    """The values of a mapping by the names of their fields; None if it is not a mapping. Reports what is wrong."""
    if not isinstance(node.value, dict):
        report(node.line, f"{_begin(where)} must be a mapping, not {described(node.value)}.")
        return None
    for key, line in node.repeated:
        report(line, f"The key {key!r} occurs twice in {where}.")
    found: dict[str, Any] = {}
    for key, inner in node.value.items():
        known = keys.get(key)
        if known is None:
            report(inner.line, f"{_begin(where)} has no key {key!r}.{_meant(key, keys)}")
            continue
        try:
            found[known.field_of(key)] = known.kind.read(inner, key)
        except Several as several:
            for wrong in several.mistakes:
                report(wrong.line, wrong.message)
        except Wrong as wrong:
            report(wrong.line, wrong.message)
    for key, known in keys.items():
        if known.required and key not in node.value:
            report(node.line, f"{_begin(where)} needs the key {key!r}.")
    return found


def _begin(where: str) -> str:
    return where[0].upper() + where[1:] if " " in where else where


_SYNONYMS = {
    "after": "needs", "cmd": "run", "command": "run", "cron": "schedule", "depends_on": "needs", "env": "inputs",
    "id": "name", "job": "name", "jobs": "tasks", "params": "inputs", "prompt": "run", "retries": "retry",
    "script": "run", "shell": "run", "steps": "tasks", "timeout": "timeout_sec", "with": "input",
}  # fmt: skip


def _meant(key: str, keys: Mapping[str, Key]) -> str:
    meant = _SYNONYMS.get(key.lower())
    if meant in keys:
        return f" Did you mean {meant!r}?"
    return did_you_mean(key, keys) or f" It has {', '.join(keys)}."


@dataclass(frozen=True)
class Record:
    """A mapping with keys of its own. `build` makes the value from the fields; without it, it is the dict."""

    keys: Mapping[str, Key]
    build: Callable[..., Any] = dict
    short: str | None = None  # the field that a plain text stands for

    def read(self, node: TreeNode, key: str) -> Any:
        if self.short is not None and isinstance(node.value, str):
            node = TreeNode({self.short: node}, node.line)
        mistakes: list[Wrong] = []
        fields = read_keys(node, self.keys, key, lambda line, message: mistakes.append(Wrong(line, message)))
        if mistakes:
            raise Several(mistakes)
        return self.build(**(fields or {}))

    def schema(self) -> dict[str, Any]:
        full = object_schema(self.keys)
        if self.short is None:
            return full
        return {"oneOf": [self.keys[self.short].kind.schema(), full]}


class Several(Wrong):
    def __init__(self, mistakes: list[Wrong]) -> None:
        super().__init__(mistakes[0].line, " ".join(one.message for one in mistakes))
        self.mistakes = mistakes


def object_schema(keys: Mapping[str, Key]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no others."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"description": key.meaning, **key.kind.schema()} for name, key in keys.items()},
        "additionalProperties": False,
    }
    required = [name for name, key in keys.items() if key.required]
    return {**schema, "required": required} if required else schema


class GateValue(NamedTuple):
    """The value of the key `gate`: two fields of the spec."""

    gate: str
    question: QuestionSpec | None = None


class Gate:
    """`user_approval`, the name of a registered gate, or an expression; or `user_approval` with its question."""

    def read(self, node: TreeNode, key: str) -> GateValue:
        if isinstance(node.value, dict):
            return self._with_question(node, node.value, key)
        if isinstance(node.value, str) and "{{" in node.value:
            return GateValue(node.value)
        return GateValue(LaneName("gate").read(node, key))

    def _with_question(self, node: TreeNode, given: dict[str, TreeNode], key: str) -> GateValue:
        if list(given) != [APPROVAL_GATE] or node.repeated:
            others = [name for name in given if name != APPROVAL_GATE]
            line = given[others[0]].line if others else node.line
            raise Wrong(
                line,
                f"{key} as a mapping has one key, {APPROVAL_GATE}, with the question. Any other gate is just its name.",
            )
        where = f"{key}.{APPROVAL_GATE}"
        question: QuestionSpec = Record(QUESTION_KEYS, QuestionSpec).read(given[APPROVAL_GATE], where)
        return GateValue(APPROVAL_GATE, question)

    def schema(self) -> dict[str, Any]:
        name = {"type": "string", "minLength": 1, "examples": [APPROVAL_GATE, "{{ output.score > 3 }}"]}
        asking: dict[str, Any] = {
            "type": "object",
            "properties": {APPROVAL_GATE: object_schema(QUESTION_KEYS)},
            "required": [APPROVAL_GATE],
            "additionalProperties": False,
        }
        return {"oneOf": [name, asking]}


# -- the tables ------------------------------------------------------------------------------------


RETRY_KEYS = {
    "limit": Key(Whole(), "How often the task is attempted in all, 3 unless given."),
    "delay": Key(Seconds(zero=True), "Seconds before the second attempt, 1 unless given."),
    "scaling": Key(Number(1), "By how much each delay is longer than the one before, 2 unless given."),
}
REGRESS_KEYS = {
    "regress_to": Key(Name("task name"), "The task to begin again at.", required=True),
    "limit": Key(Whole(), "How often this task may regress, 3 unless given."),
}
AGENT_KEYS = {
    "type": Key(
        LaneName("agent"),
        "The name of an agent that a worker has: of --agent, HARK_AGENTS or Hark(agents=…).",
        required=True,
    ),
    "model": Key(Text(), "What replaces {model} in the command line."),
}
QUESTION_KEYS = {
    "title": Key(Text(), "What the answerer is asked; `Approve NAME?` unless given."),
    "description": Key(Text(empty=True), "What the answerer is shown; the output of the task unless given."),
    "assignees": Key(Names("assignee"), "The people and programs that may answer. Default: anyone."),
    "timeout": Key(Seconds(), "Seconds after which the attempt fails without an answer."),
}
SCHEDULE_KEYS = {
    "cron": Key(Text(), "A cron expression of five fields, or six with seconds first."),
    "every": Key(Seconds(), "Seconds between two starts, instead of `cron`."),
    "timezone": Key(TimeZone(), "The time zone of `cron`, UTC unless given."),
    "overlap": Key(Choice(("skip", "allow", "queue")), "What happens while the last one still runs."),
    "catch_up": Key(Whole(0, MAX_CATCH_UP), "How many missed starts are made up for, 1 unless given."),
    "input": Key(AnyJson(), "The input of each job that the schedule starts."),
    "correlation_key": Key(Name("correlation key"), "The correlation key of each job that the schedule starts."),
}

_QUEUE = Key(Name("queue name"), "The queue its work runs in.", RUNNING)
_PRIORITY = Key(Whole(-MAX_TASKS), "Work with a lower number runs first; 0 unless given.")
_RETRY = Key(Record(RETRY_KEYS), "How often a failed task is attempted again.", (*RUNNING, "workflow"))
_TIMEOUT_SEC = Key(Seconds(), "Seconds of work that one attempt may take.", RUNNING)
_HEARTBEAT_SEC = Key(Seconds(), "An attempt ends if its handler sends no heartbeat for so many seconds.", RUNNING)
_CONCURRENCY_KEY = Key(Text(), "Work with the same key runs one at a time, or as Hark(concurrency=…) says.", RUNNING)
_RATE_LIMIT = Key(RateLimit(), "A rate limit of Hark(rate_limits=…), or a list of it and a partition.", RUNNING)

TASK_KEYS: dict[str, Key] = {
    "name": Key(Name("task name"), "The name of the task, unique in the job.", required=True),
    "type": Key(Choice(TYPES), "What kind of task it is; `task` unless given."),
    "description": Key(Text(empty=True), "What the task is for. An approval shows it to the answerer."),
    "needs": Key(Names("task name"), "The tasks that must have ended before this one."),
    "when": Key(Choice(get_args(When)), "Whether failures among its needs matter; all_success unless given."),
    "if": Key(ConditionText(), "The task is skipped unless this expression is true.", field="condition"),
    "var": Key(Name("name of a result"), "Its name in the result of the job; the name of the task unless given."),
    "handler": Key(LaneName("handler"), "The registered handler that does the work.", RUNNING),
    "run": Key(Text(), "The shell command or, with `agent`, the prompt.", ("task", "map")),
    "agent": Key(Record(AGENT_KEYS, AgentSpec, "type"), "The agent that gets the prompt.", ("task", "map")),
    "input": Key(AnyJson(), "The input, instead of the outputs of its needs.", ("task", "loop", "workflow")),
    "gate": Key(
        Gate(),
        "user_approval (or a mapping of it and its question), a registered gate, or an expression: it decides on the "
        "output.",
        RUNNING,
    ),
    "retry": _RETRY,
    "on_fail": Key(
        Record(REGRESS_KEYS, RegressSpec),
        "What follows the last failed attempt.",
        (*RUNNING, "approval", "wait_for_event", "workflow"),
    ),
    "undo": Key(Text(), "The command or, for a handler, the handler that undoes the task.", ("task", "loop")),
    "timeout_sec": _TIMEOUT_SEC,
    "heartbeat_sec": _HEARTBEAT_SEC,
    "priority": _PRIORITY,
    "queue": _QUEUE,
    "concurrency_key": _CONCURRENCY_KEY,
    "rate_limit": _RATE_LIMIT,
    "max_iterations": Key(Whole(), "How often the loop runs at most.", ("loop",)),
    "max_duration": Key(Seconds(), "Seconds after which the loop does not begin another iteration.", ("loop",)),
    "loop_delay": Key(Seconds(zero=True), "Seconds between two iterations.", ("loop",)),
    "title": Key(Text(), "What the answerer is asked.", ("approval",)),
    "schema": Key(AnswerSchema(), "The JSON Schema of the answer.", ("approval",)),
    "assignees": Key(Names("assignee"), "The people and programs that may answer. Default: anyone.", ("approval",)),
    "timeout": Key(Seconds(), "Seconds after which the wait ends.", ("approval", "wait_for_event")),
    "event": Key(Text(), "The name of the broadcast to wait for.", ("wait_for_event",)),
    "match": Key(ConditionText(), "Which of these events count: an expression with `event`.", ("wait_for_event",)),
    "seconds": Key(Seconds(zero=True, template=True), "How long to sleep.", ("sleep",)),
    "definition": Key(Name("definition name"), "The job, workflow, machine or process to run.", ("workflow",)),
    "over": Key(ListOrTemplate(), "The list: the work is done for each of its items.", ("map",)),
    "as": Key(ItemName(), "Its name in templates; `item` unless given.", ("map",), field="as_"),
    "concurrency": Key(Whole(), "How many items are worked on at the same time.", ("map",)),
}  # fmt: skip

DEFAULT_KEYS: dict[str, Key] = {
    "retry": _RETRY,
    "timeout_sec": _TIMEOUT_SEC,
    "heartbeat_sec": _HEARTBEAT_SEC,
    "priority": _PRIORITY,
    "queue": _QUEUE,
    "concurrency_key": _CONCURRENCY_KEY,
    "rate_limit": _RATE_LIMIT,
}


class TaskList:
    """The list of tasks: read one by one in job_reading.py, so that a mistake in one does not hide the next."""

    def read(self, node: TreeNode, key: str) -> list[TreeNode]:
        if not isinstance(node.value, list):
            raise Wrong(node.line, f"{key} must be a list of tasks (`- name: …`), not {described(node.value)}.")
        if len(node.value) > MAX_TASKS:
            raise Wrong(node.line, f"{key} has {len(node.value)} tasks; a job may have {MAX_TASKS}. Use type: map.")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": "#/$defs/task"}}


JOB_KEYS: dict[str, Key] = {
    "name": Key(Name("job name"), "The name of the job. A file without it has that of the file.", required=True),
    "description": Key(Text(empty=True), "What the job is for."),
    "inputs": Key(InputDefaults(), "The inputs with their defaults; others are refused."),
    "defaults": Key(Record(DEFAULT_KEYS), "Values for all tasks that do not have their own."),
    "timeout_sec": Key(
        Seconds(), "Seconds from the beginning of the job after which it fails and its tasks are cancelled."
    ),
    "fail_fast": Key(TruthValue(), "Whether the first failure cancels the tasks that still run."),
    "queue": Key(Name("queue name"), "The queue of its tasks, unless they have their own."),
    "priority": _PRIORITY,
    "schedule": Key(
        Record(SCHEDULE_KEYS, ScheduleSpec, "cron"),
        "When the job starts by itself: a cron expression, or the options as a mapping.",
    ),
    "tasks": Key(TaskList(), "The tasks.", required=True),
    "finally": Key(TaskList(), "Tasks that always run last.", field="finally_"),
}
NEEDED_BY_TYPE: dict[str, tuple[str, ...]] = {
    "loop": ("handler",),
    "wait_for_event": ("event",),
    "sleep": ("seconds",),
    "workflow": ("definition",),
    "map": ("over",),
}
