"""Check the templates, conditions and gates of a job: they parse, and refer only to what exists at evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hark.model.nearest import did_you_mean
from hark.programs.expressions import ExpressionError, compile_condition, compile_template, names
from hark.programs.jobs.file.file_tree import TreeNode
from hark.programs.jobs.file.job_checks import Ancestors
from hark.programs.jobs.file.job_reading import JobDraft, TaskDraft
from hark.programs.jobs.file.keys import RUNNING
from hark.programs.jobs.job_graph import APPROVAL_GATE
from hark.programs.jobs.job_spec import TaskSpec

ATTRIBUTES = ("output", "status", "error")  # of a task, in a template

Form = Literal["template", "shell", "condition"]


@dataclass(frozen=True)
class ExpressionPlace:
    """A text that is compiled: where it is, in which form, and the variables it has besides `inputs` and `tasks`."""

    key: str
    node: TreeNode
    form: Form
    variables: tuple[str, ...] = ()
    of_defaults: bool = False


def check_templates(draft: JobDraft, before: Ancestors | None) -> None:
    """Report expressions that do not parse or name something that does not exist.

    Args:
        draft: The job.
        before: Which tasks come before which; None if the needs have a cycle, so that this is not known.
    """
    inputs = draft.fields.get("inputs")
    tasks = {task.name: task for task in draft.tasks if task.name is not None}
    for task in draft.tasks:
        if task.spec is None:
            continue
        for place in _places(draft, task, task.spec):
            for (root, path), position in sorted(_compile(draft, task, place).items()):
                message = _problem(task, task.spec, place, root, path, inputs, tasks, before)
                if message is not None:
                    _report(draft, task, place, position, message)


def _report(draft: JobDraft, task: TaskDraft, place: ExpressionPlace, position: int, message: str) -> None:
    element = None if place.of_defaults else task.element
    draft.report(element, place.node.line_of(position), f"{place.key}: {message}")


def _places(draft: JobDraft, task: TaskDraft, spec: TaskSpec) -> Iterator[ExpressionPlace]:
    """Every text of a task that is compiled when the task runs."""
    item = (spec.as_,) if spec.type == "map" else ()
    loop = ("iteration",) if spec.type in RUNNING else ()
    given = task.node.value
    for key, form, variables in (
        ("if", "condition", ()),
        ("match", "condition", ("event",)),
        ("run", "template" if spec.agent is not None else "shell", (*item, *loop)),
        ("concurrency_key", "template", item),
        ("rate_limit", "template", item),
        ("input", "template", loop),
        ("over", "template", ()),
        ("event", "template", ()),
        ("seconds", "template", ()),
        ("title", "template", ()),
        ("description", "template", ()),
    ):
        if key not in given or (key == "description" and spec.type != "approval"):
            continue
        for node in given[key].texts():
            yield ExpressionPlace(key, node, form, variables)  # type: ignore[arg-type]
    defaults = draft.node.value.get("defaults")
    for key in ("concurrency_key", "rate_limit"):
        if key not in given and getattr(spec, key) is not None and defaults is not None:
            for node in defaults.value[key].texts():
                yield ExpressionPlace(key, node, "template", item, of_defaults=True)
    if spec.gate is not None and "{{" in spec.gate:
        yield ExpressionPlace("gate", given["gate"], "condition", ("output", *loop))
    if spec.question is not None:
        question = given["gate"].value[APPROVAL_GATE].value
        for key in ("title", "description"):
            if key in question:
                yield ExpressionPlace(f"gate.{APPROVAL_GATE}.{key}", question[key], "template", ("output", *loop))
    if spec.undo is not None and spec.handler is None:
        yield ExpressionPlace("undo", given["undo"], "shell", ("output",))


def _compile(draft: JobDraft, task: TaskDraft, place: ExpressionPlace) -> dict[tuple[str, tuple[str, ...]], int]:
    """The names that an expression reads, with their positions. A mistake in it is reported."""
    text = str(place.node.value)
    try:
        if place.form == "condition":
            return names(compile_condition(text))
        template = compile_template(text)
        if place.form == "shell":
            template.check_shell()
        return names(template)
    except ExpressionError as error:
        _report(draft, task, place, error.position, f"{error}.")
        return {}


def _problem(
    task: TaskDraft,
    spec: TaskSpec,
    place: ExpressionPlace,
    root: str,
    path: tuple[str, ...],
    inputs: dict[str, object] | None,
    tasks: dict[str, TaskDraft],
    before: Ancestors | None,
) -> str | None:
    """The mistake in one name that an expression reads; None if the name will exist."""
    if root == "inputs":
        if inputs is None or not path or path[0] in inputs:
            return None
        return f"the job has no input {path[0]!r}.{did_you_mean(path[0], inputs)}"
    if root == "tasks":
        return _task_problem(task, spec, path, tasks, before)
    known = ("inputs", "tasks", *place.variables)
    if root in known:
        return None
    return f"there is no variable {root!r} here.{did_you_mean(root, known) or ' It can use ' + ', '.join(known) + '.'}"


def _task_problem(
    task: TaskDraft, spec: TaskSpec, path: tuple[str, ...], tasks: dict[str, TaskDraft], before: Ancestors | None
) -> str | None:
    if not path:
        return "`tasks` must be followed by the name of a task: tasks.NAME.output."
    name = path[0]
    if name not in tasks:
        return f"there is no task {name!r}.{did_you_mean(name, tasks)}"
    if len(path) > 1 and path[1] not in ATTRIBUTES:
        return f"a task has {', '.join(ATTRIBUTES)}, not {path[1]!r}: write tasks.{name}.output.{path[1]}."
    if before is None or (task.is_finally and not tasks[name].is_finally):
        return None
    if name == spec.name:
        return "a task cannot refer to itself; in a gate, its output is `output`."
    if not before.is_before(name, spec.name):
        return f"the task {name!r} does not come before it. Add it to its needs."
    return None
