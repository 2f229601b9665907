"""Jobs: their sources, their inputs and the rows of their tasks."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class TaskRow(Row, frozen=True):
    """What the interpreter and people need of a task. JSON as text."""

    id: str
    status: str
    state: str
    result: str | None
    error: str | None


# The tasks of jobs, by id: outputs for later tasks and for the result, and what `get` shows of a job. Another instance
# may have an id like that of a task.
read_tasks = Sql(
    "SELECT id, status, state, result, error FROM instances WHERE id IN :ids[text] AND kind = 'task'", row=TaskRow
)


class Descendant(Row, frozen=True):
    """An unfinished instance below a task, with the wait of its parent that its end answers."""

    parent_wait: str
    id: str
    definition: str
    status: str
    lane: str
    queue: str


# What the status of a job shows of maps and workflow tasks: those of their children that have not finished.
unfinished_below = Sql(
    """
    SELECT parent_wait, id, definition, status, lane, queue FROM instances
    WHERE parent_wait IN :waits[text] AND finished_at IS NULL ORDER BY created_at, id
    """,
    row=Descendant,
)

# The sources of versions of definitions. They never change.
sources_of = Sql(
    """
    SELECT d.name, d.version, d.source FROM {rows: name text, version bigint}
    JOIN definitions d ON d.name = r.name AND d.version = r.version
    """
)

# The state of a job, for the inputs in it.
job_of = Sql("SELECT definition, version, step, state FROM instances WHERE id = :id::text")
