"""User tasks: awakeables, with a form, assignees and a due date."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from hark.model import json
from hark.model.decisions import Arm, NewAwakeable
from hark.model.names import awakeable_id
from hark.programs.bpmn.bpmn_spec import NodeSpec, UserSpec
from hark.programs.bpmn.form_defaults import with_defaults
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import Catcher, FlowToken
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, as_name
from hark.programs.bpmn.interpreter.timers import parse_due

_VARIABLE = "name of a variable"


def ask(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Create the awakeable of a user task, and wait for its answer."""
    user = node.user or UserSpec()
    variables = run.view(token.local or token.scope)
    number = run.state.asked
    run.state.asked += 1
    name = awakeable_id(run.id, number)
    catcher = Catcher(run.number(), token.node, token.id, token.scope, "awakeable", name)
    place = f"{node.id}#{token.id}"
    title = run.evaluate(node.name, variables) if node.name else None
    assignee = _texts(run.evaluate(user.assignee, variables), "assignee", split=False)
    assignees = list(dict.fromkeys([*assignee, *_texts(run.evaluate(user.users, variables), "candidate users")]))
    groups = _texts(run.evaluate(user.groups, variables), "candidate groups")
    variable = None if user.id_variable is None else as_name(run.evaluate(user.id_variable, variables), _VARIABLE)
    run.awakeables[name] = NewAwakeable(
        name,
        number,
        place,
        task=node.id,
        nonce=secrets.token_urlsafe(16),
        title=_text(title) or node.id,
        description=_text(run.evaluate(user.description, variables)),
        schema=None if user.schema is None else json.dump(_schema(run, user.schema, variables)),
        assignees=json.dump(assignees) if assignees else None,
        groups=json.dump(groups) if groups else None,
        due_at=_due(run.evaluate(user.due, variables), run.now),
    )
    run.add_catcher(catcher, Arm("awakeable", run.wait_id(catcher.id), place, name=name))
    if variable is not None:
        run.merge(token.local or token.scope, {variable: name})


def answer_of(run: Execution, token: FlowToken, user: UserSpec, answer: Any, by: str | None) -> dict[str, Any]:
    """The variables that the answer to a user task sets."""
    values = answer if isinstance(answer, dict) else {}
    if user.by_variable is None:
        return values
    return values | {as_name(run.evaluate(user.by_variable, run.view(token.local or token.scope)), _VARIABLE): by}


def _schema(run: Execution, schema: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the answer, with the values that the defaults of the form have now."""
    return with_defaults(schema, lambda default: run.evaluate(default, variables))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dump(value)


def _texts(value: Any, what: str, *, split: bool = True) -> list[str]:
    """The names in a value: a list of texts, or a text in which they are separated by commas."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()] if split else [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    raise StuckToken(f"the {what} are not a text or a list of texts")


def _due(value: Any, now: int) -> int | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise StuckToken("the due date is not a text")
    return parse_due(value, now)
