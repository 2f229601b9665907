"""The types of events, with the data that each carries: the history of an instance consists of events.

The kernel writes events only with a type of `EventType`, which mypy checks; a test compares the data. The reference
page is made from `EVENTS`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

OutcomeType = Literal["next", "retry", "await", "spawn", "done", "stop", "held", "reclaimed", "handed_back"]
NoteType = Literal["stream", "heartbeat", "checkpoint", "escalated"]
# A program writes these with an outcome (`Decision.events`).
ProgramEventType = Literal["iteration", "paused", "gate", "skipped", "regressed", "thrown", "moved", "awaited"]
EventType: TypeAlias = OutcomeType | NoteType | ProgramEventType | Literal[
    "started", "error", "signal", "broadcast", "message", "timeout", "awakeable", "joined", "cancelled", "failed",
    "retried", "cancelling", "undo_failed", "undelivered", "unsettled", "start_refused",
    "variables", "claimed", "unclaimed", "migrated", "forked",
]  # fmt: skip


class EventInfo(Struct, frozen=True):
    """The meaning of a type of events, and the keys of its data; a key that ends with `?` may be absent."""

    meaning: str
    data: dict[str, str] = field(default_factory=dict)


_FAILURE: Final = {
    "type": "the class of the exception; null if a reason was given as a value",
    "message": "the text of the exception, or the reason",
    "traceback": "where it was raised, as text of at most 8 KiB; or null",
}
_WAITS: Final = {
    "until": "the earliest deadline, or null",
    "waits": "what it waits for: at most 20 objects with `kind`, and with `name`, `key` and `remaining` if it has "
    "them; with `awaited` false if it is an awakeable that the code of a function has not awaited yet",
    "more?": "how many waits are not listed",
}

EVENTS: Final[dict[EventType, EventInfo]] = {
    "started": EventInfo(
        "The instance was started.",
        {
            "definition": "the name of its definition",
            "version": "the version of its definition",
            "schedule?": "the schedule that started it",
            "scheduled_at?": "the tick of that schedule",
        },
    ),
    "next": EventInfo("A step returned `Next`, or a function committed results; `step` is where it continues."),
    "retry": EventInfo(
        "A step returned `Retry`, or `handle` did after an error, or a run of a function failed and has retries left. "
        "It runs again, with `attempt` one higher.",
        {
            **{f"{key}?": text for key, text in _FAILURE.items()},
            "attempt": "how often it was retried before, from 0",
            "retries?": "how often a run is retried",
            "until": "when the next attempt begins, or null for immediately",
            "place?": "the place of the wait for the next attempt of a run",
        },
    ),
    "error": EventInfo(
        "An attempt failed and is not repeated; the code goes on: `handle` chose another outcome than `Retry` "
        "and `Stop`, or the function got `RunFailed`, or it has failed and is undone now.",
        {
            **_FAILURE,
            "attempt": "how often it was retried before, from 0",
            "retries?": "how often a run is retried",
        },
    ),
    "await": EventInfo("The instance began to wait for signals, answers or time.", _WAITS),
    "spawn": EventInfo("The instance began to wait for children.", _WAITS),
    "done": EventInfo("The instance finished with a result."),
    "stop": EventInfo(
        "The instance failed: its code returned `Stop` or raised.",
        {**_FAILURE, "error": "the error of the instance"},
    ),
    "held": EventInfo(
        "The code of the instance does not fit what was committed. It keeps everything, and goes on when a worker "
        "registers other code for it, or with `retry`.",
        {
            "cause": "what does not fit, as text",
            "entry?": "the entry of the journal",
            "expected?": "what was committed",
            "found?": "what the code has or asks for",
            "line?": "the line of the code, as FILE:LINE",
        },
    ),
    "signal": EventInfo("A signal arrived.", {"name": "the name of the signal", "status": "`woke` or `stored`"}),
    "broadcast": EventInfo(
        "A broadcast arrived.", {"name": "the name of the broadcast", "status": "`woke` or `stored`"}
    ),
    "message": EventInfo("A message arrived.", {"name": "the name of the message", "key": "its correlation key"}),
    "timeout": EventInfo(
        "A wait reached its deadline, or a sleep its end.",
        {**_WAITS, "until": "the deadline", "waits": "what timed out, as in `await`"},
    ),
    "awakeable": EventInfo(
        "An awakeable of the instance was created, or asked again by a retry (`PENDING`); or it was settled.",
        {
            "awakeable": "the id of the awakeable",
            "status": "`PENDING`, `RESOLVED`, `REJECTED`, `TIMEOUT` or `CANCELLED`",
            "awaited?": "true if the code of a function awaited it as soon as it was created",
            "by?": "the name of the person or program that answered",
            "via?": "the door: `python`, `step`, `cli`, `http` or `link`",
        },
    ),
    "awaited": EventInfo(
        "The code of a function awaits an awakeable that it had created before, while something else of it runs. When "
        "nothing runs, `await` says what the code waits for.",
        {"awakeable": "the id of the awakeable"},
    ),
    "claimed": EventInfo(
        "A person claimed an awakeable of the instance, to work on it.",
        {"awakeable": "the id of the awakeable", "by": "the name of the person", "via": "the door"},
    ),
    "unclaimed": EventInfo(
        "An awakeable of the instance is not claimed any more.",
        {"awakeable": "the id of the awakeable", "by": "the name of the person who had claimed it", "via": "the door"},
    ),
    "joined": EventInfo("The children the instance waited for have finished."),
    "cancelling": EventInfo(
        "A cancel was requested, and the undo of the instance runs first.", {"error": "the reason of the cancel"}
    ),
    "undo_failed": EventInfo(
        "A part of the undo failed and is not repeated; what is left to undo still runs.",
        {
            **_FAILURE,
            "attempt": "how often it was retried before, from 0",
            "retries?": "how often the undo of a run is retried",
            "error": "type and message as one text",
        },
    ),
    "cancelled": EventInfo("The instance was cancelled; its undo, if it had one, has ended.", {"error": "the reason"}),
    "failed": EventInfo(
        "The engine failed the instance: it was quarantined after `max_crashes` crashes in a row, it is a child that "
        "could not be started, or its undo could not finish.",
        {**_FAILURE, "error": "the error of the instance"},
    ),
    "skipped": EventInfo("A task of the job does not run; `step` is its name.", {"reason": "why"}),
    "regressed": EventInfo(
        "A task of the job failed, and the job begins again at an earlier one; `step` is the task that failed.",
        {
            "to": "the task at which it begins again",
            "error": "the error of the task that failed",
            "count": "how often this task has regressed the job by now",
        },
    ),
    "moved": EventInfo(
        "Tokens of a process moved: one event per activation, before that of the outcome.",
        {
            "flows": "an object: how often each sequence flow was taken, by its id; those not taken are left out",
            "elements": "an object: how often a token entered each element, by its id; the others are left out",
        },
    ),
    "reclaimed": EventInfo(
        "The worker that executed the instance is dead, or the step called `sys.exit`: it runs again.",
        {
            "worker": "the id of that worker",
            "error?": "the exit, if the worker lives on: `SystemExit: 2`",
            "traceback?": "where it was raised, as text of at most 8 KiB",
        },
    ),
    "handed_back": EventInfo("A worker or its event loop stopped before the step had ended, and handed it back."),
    "retried": EventInfo("`retry` made the failed instance runnable again, or resumed the incidents of a process."),
    "migrated": EventInfo(
        "The instance was moved to another version of its definition; `step` is where it continues.",
        {
            "earlier": "the version that it had",
            "version": "the version that it has now",
            "bulk": "the instance that carried out the migration",
            "by?": "the name of the person or program that asked for it",
        },
    ),
    "forked": EventInfo(
        "The instance was started as a fork of another one.",
        {
            "source": "the id of the other instance",
            "at?": "the last entry of its journal that was kept; -1 if none was",
            "by?": "the name of the person or program that asked for it",
        },
    ),
    "variables": EventInfo("Variables of the process were set from outside.", {"names": "their names"}),
    "undelivered": EventInfo(
        "A signal or broadcast sent by the instance was not delivered.",
        {"target?": "the target of a signal", "name": "the name of the signal or broadcast", "error": "why"},
    ),
    "unsettled": EventInfo(
        "An awakeable the instance wanted to settle was not settled by it.",
        {"awakeable": "the id of the awakeable", "error": "why"},
    ),
    "start_refused": EventInfo(
        "An instance that this one wanted to start was not started.",
        {"definition": "the name of the definition", "error": "why"},
    ),
    "stream": EventInfo(
        "A task put a chunk into its stream.", {"task": "the name of the task", "chunk": "the chunk, any JSON value"}
    ),
    "heartbeat": EventInfo(
        "A task said that it is alive.",
        {"task": "the name of the task", "details?": "what the handler said; also the progress of the task"},
    ),
    "checkpoint": EventInfo("A task stored a checkpoint: it continues from there.", {"task": "the name of the task"}),
    "iteration": EventInfo(
        "A task returned `continue_`: the next iteration of its loop follows.",
        {"iteration": "its number, from 0"},
    ),
    "paused": EventInfo(
        "A task returned `pause`: it runs again after the delay.", {"name": "the name that the handler gave"}
    ),
    "thrown": EventInfo(
        "A handler of a process's task raised `BpmnError`, or a worker outside ended a task with an error code.",
        {"code": "the code", "message?": "a text for people", "variables": "an object, or null: what was added"},
    ),
    "escalated": EventInfo(
        "A handler of a process's task threw an escalation.",
        {
            "task": "the id of the element",
            "code": "the code",
            "variables": "an object, or null: what the handler added",
        },
    ),
    "gate": EventInfo(
        "The gate of a task decided on its output.",
        {
            "gate": "`user_approval`, the name of the gate, or its expression",
            "action": "`approve` or `reject`",
            "by?": "the name of the person or program that decided",
            "reason?": "why it was rejected",
            "comment?": "what the person who decided added",
            "edited?": "true if the answer replaced the output",
        },
    ),
}
