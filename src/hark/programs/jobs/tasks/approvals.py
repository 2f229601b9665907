"""Ask a person to approve, and read the answer: for the gate `user_approval` and for tasks of type `approval`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from hark.model import json
from hark.model.activation import Claim, WaitRow
from hark.model.answers import SettledAnswer, load_answer
from hark.model.decisions import Arm
from hark.model.names import new_id
from hark.model.notes import NoteAwakeable, TaskAwakeable
from hark.programs.jobs.job_services import JobServices

ANSWER_SCHEMA: Final = msgspec.json.encode(
    {
        "oneOf": [
            {
                "type": "object",
                "properties": {"action": {"const": "approve"}, "output": {}, "comment": {"type": "string"}},
                "required": ["action"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "action": {"const": "reject"},
                    "reason": {"type": "string"},
                    "comment": {"type": "string"},
                },
                "required": ["action"],
                "additionalProperties": False,
            },
        ]
    }
).decode()
"""The schema of the answer, unless the task has one; anything else is refused as InvalidAnswer, and changes nothing."""


async def ask(
    claim: Claim, services: JobServices, run: str, place: str, *, title: str, description: str | None,
    assignees: Sequence[str | None] | None, schema: str = ANSWER_SCHEMA, timeout: int | None = None,
) -> TaskAwakeable:  # fmt: skip
    """Create the awakeable of the question, or read it: the same `place` of a task is the same question.

    `run`: the job that the task belongs to. `timeout` in µs."""
    asked: TaskAwakeable = await services.note(
        NoteAwakeable(
            claim.id, claim.epoch, run_id=run, place=place, task=claim.step, timeout=timeout,
            nonce=secrets.token_urlsafe(16), title=title, description=description, schema=schema,
            assignees=json.dump(list(assignees)) if assignees else None,
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
