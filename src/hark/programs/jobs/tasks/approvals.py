"""Ask a person to approve, and read the decision: for the gate `user_approval` and for tasks of type `approval`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal, assert_never

import msgspec
from msgspec import Struct

from hark.model import json
from hark.model.activation import Claim, WaitRow
from hark.model.answers import SettledAnswer, load_answer
from hark.model.decisions import Arm
from hark.model.names import micros, new_id
from hark.model.notes import NoteAwakeable, TaskAwakeable
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_spec import QuestionSpec
from hark.programs.jobs.job_variables import render

ANSWER_SCHEMA: Final = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            "action": {"enum": ["approve", "reject"]},
            "output": {},
            "reason": {"type": "string"},
            "comment": {"type": "string"},
        },
        "required": ["action"],
        "examples": [{"action": "approve"}, {"action": "reject", "reason": "why not"}],
    }
).decode()
"""The schema of the answer, unless the task has one. Further keys are kept; anything else is refused as InvalidAnswer,
and changes nothing."""


class PersonDecision(Struct):
    """The decision of a person about a task.

    Attributes:
        action: What was decided; `timeout`: nothing was, in time.
        by: The person.
        answer: The answer; of one that is not an object, `{"answer": …}`.
        reason: Why it was rejected.
    """

    action: Literal["approve", "reject", "timeout"]
    by: str | None = None
    answer: dict[str, Any] = {}
    reason: Any = None


def rendered(question: QuestionSpec, variables: Mapping[str, Any]) -> QuestionSpec:
    """The question with its templates replaced."""
    title, description = (_text(render(one, variables)) for one in (question.title, question.description))
    return msgspec.structs.replace(question, title=title, description=description)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dump(value)


async def ask(
    claim: Claim, services: JobServices, run: str, place: str, question: QuestionSpec, *, schema: str = ANSWER_SCHEMA
) -> TaskAwakeable:
    """Create the awakeable of a rendered question, or read it: the same `place` of a task is the same question.

    `run`: the job that the task belongs to."""
    asked: TaskAwakeable = await services.note(
        NoteAwakeable(
            claim.id, claim.epoch, run_id=run, place=place, task=claim.step,
            timeout=None if question.timeout is None else micros(question.timeout, "timeout", zero=False),
            nonce=secrets.token_urlsafe(16), title=question.title, description=question.description, schema=schema,
            assignees=json.dump(list(question.assignees)) if question.assignees else None,
        )
    )  # fmt: skip
    return asked


def arm(asked: TaskAwakeable, place: str) -> Arm:
    """The wait for the answer."""
    return Arm("awakeable", new_id(), place, asked.id, deadline=asked.timeout_at)


def answer_to(claim: Claim, wait: WaitRow) -> SettledAnswer | None:
    """The answer that this wait was armed for, if it has arrived."""
    rows = (row for row in claim.inbox if wait.answered_by(row.kind, row.name, row.wait_id))
    return next((load_answer(row.payload) for row in rows), None)


def decision_of(answer: SettledAnswer) -> PersonDecision:
    """Read an answer. One with `"approved": false` or `"action": "reject"` is a rejection, whatever else it has."""
    match answer.status:
        case "TIMEOUT":
            return PersonDecision("timeout", reason="there was no answer in time")
        case "REJECTED" | "CANCELLED":
            return PersonDecision("reject", answer.by, reason=None if answer.error == "rejected" else answer.error)
        case "RESOLVED":
            value = json.load(answer.text)
            given = value if isinstance(value, dict) else {"answer": value}
            if given.get("approved") is False or given.get("action") == "reject":
                return PersonDecision("reject", answer.by, given, given.get("reason"))
            return PersonDecision("approve", answer.by, given)
        case _ as never:
            assert_never(never)
