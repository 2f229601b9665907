"""The rules that hold for the state of a process after every activation, whatever the process is."""

from __future__ import annotations

from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, NewTask, Park, Proceed
from hark.programs.bpmn.interpreter.instance_state import BpmnState, load_bpmn_state


def flaws(claim: Claim, decision: Decision) -> list[str]:
    """What is wrong with the outcome of an activation."""
    state = load_bpmn_state(decision.state)
    found = [*_scopes(state), *_tokens(state), *_catchers(state), *_incidents(state)]
    if isinstance(decision.move, Park | Proceed):
        found += _waits(claim, decision.move, state)
    if isinstance(decision.move, Finish) and decision.move.status == "done" and (state.tokens or state.catchers):
        found.append("it is done and has tokens or catchers")
    started = [effect.item.id for effect in decision.effects if isinstance(effect, NewTask)]
    children = {f"{claim.id}.{token.child}" for token in state.tokens if token.child}
    found += [f"the child {id} belongs to no token" for id in started if id not in children]
    return found


def _scopes(state: BpmnState) -> list[str]:
    scopes = {scope.id: scope for scope in state.scopes}
    tokens = {token.id: token for token in state.tokens}
    owned = {token.local for token in state.tokens}
    found = []
    for scope in state.scopes:
        if scope.id == 0:
            continue
        if scope.parent not in scopes:
            found.append(f"scope {scope.id} ({scope.kind}) is in scope {scope.parent}, which is gone")
        if scope.owner not in tokens:
            found.append(f"scope {scope.id} ({scope.kind}) belongs to token {scope.owner}, which is gone")
        if scope.kind not in ("iteration", "handler") and scope.id not in owned:
            found.append(f"no token owns scope {scope.id} ({scope.kind})")
    return found


def _tokens(state: BpmnState) -> list[str]:
    scopes = {scope.id for scope in state.scopes}
    found = [
        f"token {one.id} is in scope {one.scope}, which is gone" for one in state.tokens if one.scope not in scopes
    ]
    for one in state.tokens:
        if one.local and one.local not in scopes:
            found.append(f"token {one.id} owns scope {one.local}, which is gone")
    numbers = [*(t.id for t in state.tokens), *(s.id for s in state.scopes), *(c.id for c in state.catchers)]
    if len(set(numbers)) != len(numbers):
        found.append("a number is used twice")
    return found


def _catchers(state: BpmnState) -> list[str]:
    tokens, scopes = {token.id for token in state.tokens}, {scope.id for scope in state.scopes}
    found = []
    for one in state.catchers:
        if one.token and one.token not in tokens:
            found.append(f"catcher {one.id} belongs to token {one.token}, which is gone")
        if one.scope not in scopes:
            found.append(f"catcher {one.id} is in scope {one.scope}, which is gone")
    return found


def _incidents(state: BpmnState) -> list[str]:
    tokens = {token.id for token in state.tokens}
    return [
        f"the incident at {one.element} belongs to token {one.token}, which is gone"
        for one in state.incidents
        if one.token and one.token not in tokens
    ]


def _waits(claim: Claim, move: Park | Proceed, state: BpmnState) -> list[str]:
    """The waits in the store are the catchers that are not conditions, and the one for children."""
    armed = [arm.id for arm in move.arm]
    disarmed = set(move.disarm or ())
    before = {wait.id for wait in claim.waits}
    waits = (before - disarmed) | set(armed)
    expected = {f"{claim.id}~{one.id}" for one in state.catchers if one.kind != "condition"} | {f"{claim.id}~0"}
    found = []
    if missing := expected - waits:
        found.append(f"these catchers have no wait: {sorted(missing)}")
    if extra := waits - expected:
        found.append(f"these waits have no catcher: {sorted(extra)}")
    if unknown := disarmed - before:
        found.append(f"it disarms what was not armed: {sorted(unknown)}")
    return found
