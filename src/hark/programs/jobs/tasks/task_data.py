"""Read the data of a handler: the inputs of its job, the outputs of the tasks before it, and its own input.

Read once, before the handler runs: the inputs are in the state of the task if they are small, the outputs are in the
rows of the other tasks and are read with one statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, Struct

from hark.model import json
from hark.model.byte_values import MARK, restore
from hark.model.errors import InvalidInput
from hark.programs.bpmn.interpreter.shared_variables import SharedVariables
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_variables import Compiled, Scope, render, templates_in
from hark.programs.jobs.task_ids import task_id
from hark.programs.jobs.tasks.task_state import LOCAL, STARTED_AT, TaskState


class TaskData(Struct):
    """The input of a handler, the inputs of its job, and the outputs of the tasks that it needs, by name.

    Input and inputs of a task of a process are the variables that it sees.

    `scope` and `more` are for other templates of the task: `scope.variables(*templates, **more)`.
    """

    input: Any
    inputs: Any
    outputs: dict[str, Any]
    scope: Scope
    more: dict[str, Any]


async def load_data(
    state: TaskState, graph: JobGraph, services: JobServices, templates: Iterable[Compiled] = ()
) -> TaskData:
    """Read what a task may use. Raises ExpressionError if its `input:` cannot be rendered.

    Args:
        state: The state of the task.
        graph: Its job.
        services: Where it is read.
        templates: Other templates of the task: what they name is read too.
    """
    if graph.spec.is_bpmn:
        variables = await _load_variables(state, services)
        return TaskData(variables, variables, {}, Scope(graph, state.run, variables, {}), {"iteration": 0})
    task = graph.tasks[state.task]
    text = await services.inputs(state.run) if state.inputs is UNSET else bytes(state.inputs).decode()
    inputs = json.load(text)
    generations = {**state.generations, state.task: state.generation}
    rows = state.row_numbers
    scope = Scope(graph, state.run, inputs, generations, row_numbers=rows, absent=state.absent.get)
    used = templates_in(task.input)
    ids = {
        name: task_id(state.run, rows.get(number, number), generations.get(number, 0))
        for name, number in _read_whole(state, graph)
    }
    if ids:
        scope.rows = await services.outputs(ids.values())
    await scope.read(services, [*used, *templates])
    outputs = {
        name: json.load(row.result)
        for name, id in ids.items()
        if (row := scope.rows.get(id)) is not None and row.status == "done" and row.result is not None
    }
    more: dict[str, Any] = {"iteration": state.iteration}
    if state.item is not UNSET:
        more["item"] = more[task.as_] = json.load(bytes(state.item).decode())
    if state.undo:
        input = outputs.pop(task.name, None)
    elif state.item is not UNSET:
        input = more["item"]
    elif task.input is not None:
        input = render(task.input, scope.variables(*used, **more))
    elif not task.needs:
        input = inputs
    elif len(task.needs) == 1:
        input = outputs.get(task.needs[0])
    else:
        input = {need: outputs.get(need) for need in task.needs}
    texts = (
        text,
        bytes(b"" if state.item is UNSET else state.item).decode(),
        *(row.result for row in scope.rows.values()),
    )
    if any(read is not None and MARK in read for read in texts):  # templates have seen the JSON form
        input, inputs, outputs = restore(input), restore(inputs), restore(outputs)
    return TaskData(input, inputs, outputs, scope, more)


async def _load_variables(state: TaskState, services: JobServices) -> dict[str, Any]:
    """The variables that a task of a process sees: those in its state or, if they are large, those that the process had
    when it started the task, or has since, and the local ones."""
    if state.inputs is not UNSET:
        embedded: dict[str, Any] = json.load_for_code(bytes(state.inputs).decode())
        return embedded
    count, since = state.data[STARTED_AT]
    return SharedVariables(await services.variables(state.run, count, since), state.data.get(LOCAL, {}))


def dump_variables(variables: Any, limit: int) -> str:
    """The variables that a handler gives to its process, as JSON: an object, or null. Raises InvalidInput,
    PayloadTooLarge."""
    if variables is not None and not isinstance(variables, dict):
        raise InvalidInput(f"The variables must be a dict or None, not {type(variables).__name__}.")
    return json.dump_unchecked(variables, limit=limit, what="variables")


def _read_whole(state: TaskState, graph: JobGraph) -> list[tuple[str, int]]:
    """The tasks whose outputs the handler gets: those that it needs, or the one that it undoes."""
    numbers = [state.task] if state.undo else graph.needs[state.task]
    return [(graph.tasks[number].name, number) for number in numbers]
