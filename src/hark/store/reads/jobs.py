"""Read jobs: their sources, their inputs and the rows of their tasks."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class TaskRow(Row, frozen=True):
    """A task or a called process, with the columns that interpreters and people need. JSON as text."""

    id: str
    status: str
    state: str
    result: str | None
    error: str | None


_TASK = TaskRow.columns()

# The tasks of jobs and processes, and the processes that those have called, by id: for the outputs of tasks, and for
# `get` of a job. Another instance may have an id like that of a task. For `coalesce` see runs.py.
read_tasks = Sql(
    f"SELECT {_TASK} FROM instances WHERE id IN :ids[text] AND coalesce(kind, '') IN ('task', 'bpmn')", row=TaskRow
)


class Descendant(Row, frozen=True):
    """An unfinished instance below a task, with the wait of its parent that its end answers."""

    parent_wait: str
    id: str
    definition: str
    status: str
    lane: str
    queue: str


# The unfinished children of maps and workflow tasks, for the status of a job.
unfinished_below = Sql(
    """
    SELECT parent_wait, id, definition, status, lane, queue FROM instances
    WHERE parent_wait IN :waits[text] AND finished_at IS NULL ORDER BY created_at, id
    """,
    row=Descendant,
)


class DefinitionSource(Row, frozen=True):
    """The source of a version of a definition. `kind` says how it is read; code has no source."""

    name: str
    version: int
    source: str | None
    kind: str


# The sources of versions of definitions. They never change.
sources_of = Sql(
    """
    SELECT d.name, d.version, d.source, d.kind FROM {rows: name text, version bigint}
    JOIN definitions d ON d.name = r.name AND d.version = r.version
    """,
    row=DefinitionSource,
)


# The state of a process, for the variables in it.
process_state = Sql("SELECT epoch, state FROM instances WHERE id = :id::text AND kind = 'bpmn'")

# The state of a job, for the inputs in it.
job_of = Sql("SELECT definition, version, step, state FROM instances WHERE id = :id::text")
