"""The state of a process instance: its variables, scopes, tokens, catchers and incidents, in one row.

Everything is numbered from one counter, so a number is never used twice in an instance. A list that may be long is made
of structs that are stored as arrays: a multi-instance activity of 5,000 has 5,000 tokens and scopes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hark.model.bpmn_state import has_begun

RUN = "run"
"""The step of an instance after its first activation."""

ScopeKind = Literal["process", "subprocess", "local", "loop", "iteration", "compensation", "handler"]
CatcherKind = Literal["broadcast", "message", "timer", "awakeable", "condition"]
Action = Literal[
    "enter", "body", "ended", "iterated", "completed", "leave", "end", "fire", "child", "thrown", "compensate"
]
Resumption = Literal[
    "enter", "body", "ended", "iterated", "completed", "leave", "fire", "child", "thrown", "compensate", "conditions",
    "work", "arm",
]  # fmt: skip


class Compensation(Struct, array_like=True):
    """An activity that has completed and can be compensated.

    Attributes:
        node: The activity.
        variables: All that it could see when it had completed.
        records: Of a sub-process: what can be compensated in it.
    """

    node: int
    variables: dict[str, Any]
    records: list[Compensation] = []


class LoopState(Struct, omit_defaults=True):
    """The progress of a loop.

    Attributes:
        total: How many instances there are in all; of a standard loop: how many have begun.
        completed: How many have ended.
        items: The items of a sequential multi-instance over a collection.
        outputs: What its instances have given, by number.
    """

    total: int = 0
    completed: int = 0
    items: list[Any] | None = None
    outputs: list[Any] | None = None


class BpmnScope(Struct, array_like=True):
    """A part of an instance with variables and tokens of its own.

    Attributes:
        id: Its number; 0 is the process itself.
        node: The activity it belongs to; -1 for the process.
        parent: The scope around it.
        kind: `process`, `subprocess` (an event sub-process too) and `handler` have tokens that follow flows. `local`
            has the mapped inputs of a task, `loop` one `iteration` for each of its instances that has begun.
            `compensation` belongs to a throw event that waits for its handlers, each in a `handler`.
        owner: The token that waits for its end.
        variables: Its local variables. Those of a `handler` are the ones that were there when the activity completed:
            they are read before all others, and never written.
        interrupted: An interrupting event sub-process has begun in it: no other one begins any more.
        loop: Of a loop.
        records: What has completed in it and can be compensated; of a `compensation`: what is still to be compensated;
            of an `iteration`: what can be compensated in the sub-process that it has run.
        fired: Complex gateways that have gone on, and the incoming flows that they still expect a token from.
    """

    id: int
    node: int
    parent: int
    kind: ScopeKind
    owner: int = 0
    variables: dict[str, Any] = {}
    interrupted: bool = False
    loop: LoopState | None = None
    records: list[Compensation] = []
    fired: dict[int, list[int]] = {}


class FlowToken(Struct, array_like=True):
    """A token.

    Attributes:
        id: Its number.
        node: Where it is.
        scope: In which scope.
        flow: The flow it came by, while it waits in a join.
        local: The scope that it owns.
        child: The number of the child that does its work: a service task or a called process.
    """

    id: int
    node: int
    scope: int
    flow: int = -1
    local: int = 0
    child: int = 0


class Catcher(Struct, array_like=True):
    """An event that a token or a scope waits for. All but conditions have a wait in the store, with the same number.

    Attributes:
        id: Its number.
        node: The event that goes on when it comes: a catch, boundary or start event, a receive task or a user task.
        token: Whose event it is: of a boundary event, its host. 0: it starts an event sub-process.
        scope: The scope of the token; for an event sub-process, the scope it is in.
        kind: What answers it.
        name: The name of a broadcast or message, the id of an awakeable, the text of a timer.
        key: The correlation key of a message.
        due: When a timer fires, µs since 1970.
        left: How many times it still fires; None: there is no limit.
    """

    id: int
    node: int
    token: int
    scope: int
    kind: CatcherKind
    name: str = ""
    key: str | None = None
    due: int = 0
    left: int | None = None


class Incident(Struct, omit_defaults=True):
    """A token that cannot go on.

    Attributes:
        token: The token; 0: none, an event or a condition could not be handled.
        element: The id of the element where it is.
        error: Why.
        since: When it began, µs since 1970.
        resume: What a retry does with the token.
        data: What else it needs for that.
        fatal: It fails the instance at once: an expression could not be evaluated.
    """

    token: int
    element: str
    error: str
    since: int
    resume: Resumption
    data: Any = None
    fatal: bool = False


class PendingAction(Struct, array_like=True):
    """An action that an activation has left for the next one.

    Attributes:
        action: What to do.
        token: With which token; 0: none.
        data: What else it needs.
    """

    action: Action
    token: int = 0
    data: Any = None


class Unarmed(Struct, array_like=True):
    """An event that is still to be waited for since the instance was migrated.

    Attributes:
        node: The event.
        token: Whose event it is; 0: it starts an event sub-process.
        scope: The scope of its catcher.
        catcher: Of an event that is waited for already: its catcher. From now on it may come several times, so its wait
            is armed again.
    """

    node: int
    token: int
    scope: int
    catcher: int = 0


class BpmnState(Struct, omit_defaults=True):
    """The state of an instance.

    Attributes:
        variables: Those of the process.
        last: The last number that was given.
        asked: How many awakeables it has created.
        scopes: All scopes; the first is the process.
        tokens: All tokens.
        catchers: All catchers.
        incidents: All incidents.
        elements: The ids of the elements where tokens rest, by number: for people, who have no spec at hand.
        failed: It has failed; when it runs again, it was retried.
        thrown: The error with which it has failed, for the process that called it: code, message and variables.
        terminates: What it terminates of the process that called it, now that it is done: see terminating.py.
        work: The actions that an activation has left for the next one, the first to do last.
        passed: How many actions it has done since all of its tokens rested, if an activation has left some.
        spent: The work of the expressions in them, in actions that take as long.
        unarmed: What the next activation has to wait for, because the instance was migrated.
    """

    variables: dict[str, Any]
    last: int = 0
    asked: int = 0
    scopes: list[BpmnScope] = []
    tokens: list[FlowToken] = []
    catchers: list[Catcher] = []
    incidents: list[Incident] = []
    elements: dict[int, str] = {}
    failed: bool = False
    thrown: dict[str, Any] | None = None
    terminates: Literal["loop", "all"] | None = None
    work: list[PendingAction] = []
    passed: int = 0
    spent: int = 0
    unarmed: list[Unarmed] = []


load_bpmn_state = msgspec.json.Decoder(BpmnState).decode
"""Read the state of a process from the text in its row."""
_encoder = msgspec.json.Encoder()


def dump_bpmn_state(state: BpmnState) -> str:
    """The state of a process as the text for its row."""
    return _encoder.encode(state).decode()


class _Shown(Struct):
    """The part of a state that `view` reads."""

    variables: dict[str, Any] = {}
    tokens: list[FlowToken] = []
    incidents: list[Incident] = []
    elements: dict[int, str] = {}


_shown_decoder = msgspec.json.Decoder(_Shown)


def view(state: str, step: str) -> dict[str, Any]:
    """The state of a process as people see it.

    Args:
        state: The text in its row.
        step: The step of the row.

    Returns:
        dict: `variables`; `tokens`: the ids of the elements where tokens rest; `incidents`: `element`, `error` and
            `since` of each.
    """
    if not has_begun(step):
        given = msgspec.json.decode(state)
        return {"variables": given if isinstance(given, dict) else {}, "tokens": [], "incidents": []}
    shown = _shown_decoder.decode(state)
    return {
        "variables": shown.variables,
        "tokens": [shown.elements[token.node] for token in shown.tokens],
        "incidents": [
            {"element": incident.element, "error": incident.error, "since": _iso(incident.since)}
            for incident in shown.incidents
        ],
    }


def resting_elements(tokens: Iterable[FlowToken], ids: list[str]) -> dict[int, str]:
    """The ids of the elements where these tokens are, by number."""
    return {node: ids[node] for node in {token.node for token in tokens}}


def _iso(micros: int) -> str:
    at = datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000)
    return at.isoformat()
