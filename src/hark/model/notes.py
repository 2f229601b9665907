"""Notes: the writes of a task while its handler runs.

A note is committed alone, at once, and does not end the activation: neither the epoch nor the slot changes. It is
fenced like an outcome: if the task is no longer executing at this epoch, nothing of it is written and its result is
`TaskLost`. Values are JSON text, times are µs.
"""

from __future__ import annotations

from msgspec import Struct, field

from hark.model.decisions import Arm
from hark.model.events import NoteType


class Note(Struct):
    """The task that a note belongs to, and the epoch of its claim."""

    task_id: str
    epoch: int


class NotedEvent(Struct, frozen=True, gc=False):
    """An event of the task, written with a note. `data` is a JSON object, or None."""

    type: NoteType
    data: str | None = None


class NoteEvents(Note):
    """Write events: chunks of a stream, heartbeats. The result is None.

    Events above the limits of the task and the run are not written. With `refuses_stream` the result is then
    `PayloadTooLarge`, if a chunk is among them.
    """

    events: tuple[NotedEvent, ...] = ()
    step: str | None = None  # the name of the task, shown with the events
    progress: str | None = None  # JSON for `progress` of the instance; None leaves it as it is
    run_id: str | None = None  # the job or process, whose stream has the chunks
    refuses_stream: bool = False


class NoteState(Note):
    """A checkpoint: replace the state of the task, consume rows of its inbox, delete waits. The result is None.

    Without a state, only the rest: waits that the handler has given up.

    A signal of the run that a deleted wait has received and that is not consumed here goes back to the run.
    """

    state: str | None = None
    consume: tuple[int, ...] = ()
    disarm: tuple[str, ...] = ()
    run_id: str | None = None  # the job, if waits are deleted
    events: tuple[NotedEvent, ...] = ()
    step: str | None = None


class NoteWait(Note):
    """Arm a wait of the task. The result is the `InboxRow` that answers it, or None if there is none yet.

    With `arm.run`, the id of the job, it waits for a signal of the run: the oldest one that no wait has received yet is
    its answer. A wait for an awakeable is answered if that is settled already, and its deadline is the awakeable's;
    the result is `NotFound` if the task has no such awakeable. An answer stays in the inbox of the task until it is
    consumed. `arm.deadline` is the time at which the task asks for `NoteTimeout`; after a park the sweep fires it. Once
    the note is committed it is the deadline in the store, also that of an awakeable.
    """

    arm: Arm = field(default_factory=lambda: Arm("signal", ""))


class NoteInbox(Note):
    """Read the inbox of the task, after its listener was notified of rows that it was not given. The result is a list
    of `InboxRow`: those above the number `after` that are not consumed."""

    after: int = 0


class NoteTimeout(Note):
    """Fire a deadline that passed while the task executes. The result is the `InboxRow` of the answer: one that
    came first, or else a row of kind `timer` (of kind `awakeable` with status TIMEOUT if it waits for an awakeable).
    It is None if the deadline is still ahead by the clock of the database, or there is no such wait."""

    wait_id: str = ""


class NoteAwakeable(Note):
    """Create an awakeable of the run that this task answers for. The result is a `TaskAwakeable`.

    `place` names it within the task: the same place again gives the same awakeable, with the answer it has by then. A
    task therefore uses a new place for each one that it asks anew: after a checkpoint, and in another attempt.
    """

    run_id: str = ""
    place: str = ""
    task: str | None = None  # the name of the task, for people
    timeout: int | None = None
    nonce: str = ""
    title: str | None = None
    description: str | None = None
    schema: str | None = None
    assignees: str | None = None


class NoteParent(Note):
    """Post news to the parent of the task, as the effect `TellParent` does. The result is True, or False if the
    parent does not wait for its children any more.

    `parent_id` and `parent_wait` are those of the claim.
    """

    parent_id: str = ""
    parent_wait: str = ""
    payload: str = "null"
    events: tuple[NotedEvent, ...] = ()
    step: str | None = None


class NoteRun(Note):
    """Record the result of a run (`task.run`) as a line of the journal of the task. The result is None.

    `seq` is its number in this period of the task. `is_first`: lines of earlier periods are deleted first.
    """

    period: int = 0
    seq: int = 0
    name: str | None = None
    value: str | None = None
    error: str | None = None
    is_first: bool = False


class NoteRuns(Note):
    """Read the runs of a period. The result is a list of `JournalRow`."""

    period: int = 0


class TaskAwakeable(Struct, frozen=True, gc=False):
    """An awakeable of a task, as the store has it."""

    id: str
    entry_index: int
    nonce: str
    timeout_at: int | None
    status: str


AnyNote = NoteEvents | NoteState | NoteWait | NoteInbox | NoteTimeout | NoteAwakeable | NoteParent | NoteRun | NoteRuns
