"""Timers that are written in the file, without an expression."""

from __future__ import annotations

from typing import Any

from hark.dialects.bpmn.sources import is_expression


def timer_problem(kind: str, text: Any) -> str | None:
    """Why a timer cannot be due; None if it can, or if its text is only known later."""
    if not isinstance(text, str) or is_expression(text):
        return None
    return None
