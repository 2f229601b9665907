"""Check the arguments of an effect or a question and build it, for the contexts of steps, functions and tasks.

All contexts accept and refuse the same arguments. An effect is applied by the kernel, in the turn that commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hark.model import json
from hark.model.decisions import SendBroadcast, SendSignal, Settle
from hark.model.errors import InvalidInput, PayloadTooLarge
from hark.model.names import check_awakeable_id, check_name, micros
from hark.model.outcomes import Duration
from hark.model.schema import compile_schema

MAX_PROGRESS = 1 << 14  # bytes of JSON


def send_signal(target: Any, name: str, payload: Any, dedup_key: str | None, max_payload: int) -> SendSignal:
    """A signal to an id or a correlation key, or to the `id` of a handle."""
    return SendSignal(
        check_name(getattr(target, "id", target), "target"),
        check_name(name, "signal name"),
        json.dump(payload, limit=max_payload),
        None if dedup_key is None else check_name(dedup_key, "dedup key"),
    )


def send_broadcast(name: str, payload: Any, dedup_key: str | None, max_payload: int) -> SendBroadcast:
    """A broadcast to all current subscribers of a name."""
    return SendBroadcast(
        check_name(name, "broadcast name"),
        json.dump(payload, limit=max_payload),
        None if dedup_key is None else check_name(dedup_key, "dedup key"),
    )


def resolve(awakeable_id: str, payload: Any, by: str, max_payload: int) -> Settle:
    """The answer to an awakeable."""
    text = json.dump(payload, limit=max_payload)
    return Settle(check_awakeable_id(awakeable_id), "RESOLVED", text, by=_answerer(by), via="step")


def reject(awakeable_id: str, error: str, by: str) -> Settle:
    """The rejection of an awakeable, with its reason."""
    reason = json.check_text(error, "error")
    return Settle(check_awakeable_id(awakeable_id), "REJECTED", error=reason, by=_answerer(by), via="step")


def progress(value: Any) -> str:
    """A value for `Instance.progress`, as JSON text. It is small: lists show it, and a loop may set it often."""
    text = json.dump_unchecked(value, what="progress")
    size = len(text.encode())
    if size > MAX_PROGRESS:
        raise PayloadTooLarge(
            f"The progress is {size} bytes of JSON and {MAX_PROGRESS} are allowed; give a count, a stage or a short "
            "text, and keep the rest in the state or elsewhere",
            size=size,
            limit=MAX_PROGRESS,
        )
    return text


def question(
    timeout: Duration | None, title: str | None, description: str | None, schema: Any, assignees: Any
) -> tuple[dict[str, Any], Callable[[str], Any]]:
    """The checked fields of a new awakeable, and what reads its answer."""
    stored, decode = compile_schema(schema)
    names = _assignees(assignees)
    return {
        "timeout": None if timeout is None else micros(timeout, "timeout", zero=False),
        "title": None if title is None else json.check_text(title, "title"),
        "description": None if description is None else json.check_text(description, "description"),
        "schema": stored,
        "assignees": json.dump(names) if names else None,
    }, decode


def _assignees(names: Any) -> list[str]:
    if names is None:
        return []
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidInput(f"assignees={names!r}: give a list of names, or None for anyone.")
    return [check_name(name, "assignee") for name in names]


def _answerer(by: str) -> str:
    return check_name(by, "answerer (by=)")
