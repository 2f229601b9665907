"""Move an instance of a process to another version: its tokens, scopes, catchers, records and incidents become those of
the other version, or the reasons are told why they cannot.

Numbers of tokens, scopes, catchers and children stay, so do waits, awakeables and children: only their elements change.
What the other version waits for in addition is listed in `BpmnState.unarmed`; the next activation arms it. So an
instance may be moved again before that, and one that has failed before it is retried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hark.model.activation import Claim
from hark.model.bpmn_state import START, control_wait, has_begun
from hark.model.migration import Migrated, refuse
from hark.programs.bpmn.bpmn_elements import EVENTS
from hark.programs.bpmn.bpmn_spec import step_of_start
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.bpmn.interpreter.element_map import ElementMap, has_other_condition
from hark.programs.bpmn.interpreter.instance_state import (
    BpmnScope,
    BpmnState,
    Catcher,
    Compensation,
    FlowToken,
    Incident,
    Unarmed,
    dump_bpmn_state,
    load_bpmn_state,
    resting_elements,
)


def migrate_process(old: BpmnGraph, new: BpmnGraph, claim: Claim, elements: Mapping[str, str]) -> Migrated:
    """Compute what becomes of an instance.

    Args:
        old: The version that it has.
        new: The version that it gets.
        claim: The instance, as it is in the store.
        elements: What elements and sequence flows become, by id. Those that are not in it keep their ids; an event that
            becomes `""` is not kept.

    Raises:
        InvalidMigration: It cannot be moved; `.problems` has all reasons, with lines of the new version.
    """
    label = f"{claim.definition} {claim.correlation_key or claim.id}"
    map = ElementMap(old, new, elements)
    if map.problems:
        raise refuse(label, map.problems)
    if not has_begun(claim.step):
        migrated = Migrated(step=_first_step(map, claim.step), state=claim.state)
    else:
        migrated = _MovingProcess(map, claim).migrated()
    if map.problems:
        raise refuse(label, map.problems)
    return migrated


def _first_step(map: ElementMap, step: str) -> str:
    """The step of an instance that has not begun: its start event."""
    if step == START:
        if not map.new.spec.starts_by_name:
            map.refuse(map.new.spec.id, "the new version has no start event without a trigger, and is started by none")
        return step
    number = map.old.numbers[step.removeprefix(f"{START}:")]
    target = map.active(number)
    return step if target is None else step_of_start(map.new.ids[target])


class _MovingProcess:
    """An instance that has begun, on its way to another version."""

    def __init__(self, map: ElementMap, claim: Claim) -> None:
        self._map, self._old, self._new, self._claim = map, map.old, map.new, claim
        self._state: BpmnState = load_bpmn_state(claim.state)
        self._tokens = {token.id: token for token in self._state.tokens}
        self._scopes = {scope.id: scope for scope in self._state.scopes}
        self._next: dict[int, str] = {each.token: each.resume for each in self._state.incidents if each.token}
        self._next |= {each.token: each.action for each in self._state.work if each.token}
        self._catching = {each.token for each in self._state.catchers}
        self._added: list[Unarmed] = []
        self._waits: list[tuple[str, str]] = []
        self._dropped: list[str] = []
        self._questions: list[tuple[str, str, str | None]] = []

    def migrated(self) -> Migrated:
        state = self._state
        for token in state.tokens:  # so that the reasons are in their order, which is from the outside to the inside
            self._map.active(token.node)
        self._check_joins()
        self._check_event_gateways()
        earlier = [each for each in map(self._kept_unarmed, state.unarmed) if each is not None]
        state.catchers = [each for each in state.catchers if self._move_catcher(each)]
        alive = {each.id for each in state.catchers}
        self._add_boundary_events()
        self._add_event_subprocesses()
        state.incidents = [each for each in state.incidents if self._move_incident(each)]
        for scope in state.scopes:
            self._move_scope(scope)
        for token in state.tokens:
            self._move_token(token)
        if self._map.problems:  # the state is half moved
            return Migrated(step=self._claim.step, state=self._claim.state)
        state.unarmed = [each for each in earlier if not each.catcher or each.catcher in alive] + self._added
        state.elements = resting_elements(state.tokens, self._new.ids)
        wakes = not state.failed and (state.unarmed or self._dropped or self._new.joins_by_reach)
        return Migrated(
            step=self._claim.step,
            state=dump_bpmn_state(state),
            moved_waits=tuple(self._waits),
            dropped_waits=tuple(self._dropped),
            moved_questions=tuple(self._questions),
            control=control_wait(self._claim.id) if wakes else None,
        )

    # -- tokens and scopes ---------------------------------------------------------------------------

    def _move_token(self, token: FlowToken) -> None:
        target = self._map.active(token.node)
        if target is None:
            return
        if token.flow >= 0:
            flow = self._map.flow(token.flow)
            token.flow = -1 if flow is None else flow
        token.node = target

    def _move_scope(self, scope: BpmnScope) -> None:
        if scope.node >= 0:
            target = self._map.active(scope.node)
            scope.node = scope.node if target is None else target
        scope.records = [self._moved_record(record) for record in scope.records]
        scope.fired = dict(filter(None, (self._moved_expectation(*each) for each in scope.fired.items())))

    def _moved_expectation(self, number: int, flows: list[int]) -> tuple[int, list[int]] | None:
        """The flows that a complex gateway still expects a token from, after it has gone on."""
        target = self._map.found(number)
        if target is None or not self._new.elements[target].expects_tokens:
            return None
        left = [flow for flow in map(self._map.flow, flows) if flow is not None and self._new.targets[flow] == target]
        return (target, left) if left else None

    def _moved_record(self, record: Compensation) -> Compensation:
        """The record of an activity that can be compensated: it has to be so in the other version too."""
        old = self._old.nodes[record.node]
        target = self._map.active(record.node, "this {} has completed and can be compensated")
        records = [self._moved_record(inner) for inner in record.records]
        if target is None:
            return record
        new = self._new.nodes[target]
        had = old.compensation is not None or _is_compensated_inside(self._old, record.node)
        if had and new.compensation is None and not _is_compensated_inside(self._new, target):
            message = f"it has completed and can be compensated, and {new.id!r} of the new version has no handler"
            self._map.refuse(old.id, message, new)
        return Compensation(target, record.variables, records)

    # -- joins and event gateways --------------------------------------------------------------------

    def _check_joins(self) -> None:
        """Tokens that wait in a join stay there, each at the flow by which it came."""
        taken: dict[int, int] = {}  # the joins, by what they become
        flows: dict[int, int] = {}
        for token in self._state.tokens:
            if token.flow < 0 or not self._old.elements[token.node].is_join:
                continue
            target = self._map.active(token.node)
            if target is None:
                continue
            old, new = self._old.nodes[token.node], self._new.nodes[target]
            if taken.setdefault(target, token.node) != token.node:
                other = self._old.ids[taken[target]]
                self._map.refuse(old.id, f"tokens wait in it and in {other!r}, which becomes {new.id!r} too", new)
            if len(new.incoming) < len(old.incoming):
                message = (
                    f"tokens wait in it, and {new.id!r} of the new version has {len(new.incoming)} incoming flows "
                    f"instead of {len(old.incoming)}: it needs at least as many"
                )
                self._map.refuse(old.id, message, new)
            flow, id = self._map.flow(token.flow), self._old.flows[token.flow].id
            if flow is None or self._new.targets[flow] != target:
                message = (
                    f"a token waits in it that came by {id!r}, and the new version has no such flow to {new.id!r}: "
                    "name the flow that it becomes"
                )
                self._map.refuse(old.id, message, new)
            elif flows.setdefault(flow, token.flow) != token.flow:
                other = self._old.flows[flows[flow]].id
                self._map.refuse(old.id, f"tokens wait in it that came by {id!r} and {other!r}, which become one", new)

    def _check_event_gateways(self) -> None:
        """An event gateway keeps what it waits for."""
        for token in self._state.tokens:
            if not self._old.elements[token.node].awaits_targets or (target := self._map.active(token.node)) is None:
                continue
            old = self._old.nodes[token.node]
            expected = [self._map.active(self._old.targets[flow]) for flow in old.outgoing]
            found = {self._new.targets[flow] for flow in self._new.nodes[target].outgoing}
            if None not in expected and (set(expected) != found or len(expected) != len(found)):
                new = self._new.nodes[target]
                events = ", ".join(repr(self._new.ids[each]) for each in sorted(found)) or "none"
                message = f"the instance waits for its events, and {new.id!r} of the new version has others: {events}"
                self._map.refuse(old.id, message, new)

    # -- catchers ------------------------------------------------------------------------------------

    def _move_catcher(self, catcher: Catcher) -> bool:
        """Keep what a catcher waits for, for the element that its own becomes. Return False if it ends."""
        number = catcher.node
        is_own = bool(catcher.token) and self._old.nodes[number].host is None  # not that of a boundary
        target = self._map.active(number) if is_own else self._map.event(number)
        old = self._old.nodes[number]
        wait = f"{self._claim.id}~{catcher.id}"
        if target is None:
            if catcher.kind != "condition":
                self._dropped.append(wait)
            return False
        new = self._new.nodes[target]
        if is_own and has_other_condition(old, new):  # it may hold already
            self._added.append(Unarmed(target, catcher.token, catcher.scope))
            return False
        if not new.interrupting and old.interrupting and catcher.kind in ("broadcast", "message"):
            self._added.append(Unarmed(target, catcher.token, catcher.scope, catcher.id))
        catcher.node = target
        if catcher.kind != "condition" and old.id != new.id:
            place = f"{new.id}#{catcher.token or catcher.scope}"
            self._waits.append((wait, place))
            if catcher.kind == "awakeable":
                self._questions.append((catcher.name, place, new.id))
        return True

    def _kept_unarmed(self, each: Unarmed) -> Unarmed | None:
        """An event that an earlier migration has added, and that no activation has armed yet."""
        is_own = bool(each.token) and self._old.nodes[each.node].host is None
        target = self._map.active(each.node) if is_own else self._map.event(each.node)
        return None if target is None else Unarmed(target, each.token, each.scope, each.catcher)

    def _add_boundary_events(self) -> None:
        """Wait for the boundary events of an activity or catch event that do not come from one of its own."""
        for token in self._state.tokens:
            if self._scopes[token.scope].kind == "iteration":
                continue
            if _begins_anew(self._next.get(token.id), armed=token.id in self._catching):
                continue
            target = self._map.active(token.node)
            if target is None:
                continue
            kept = self._kept(self._old.nodes[token.node].boundaries)
            for number in self._waited_for(self._new.nodes[target].boundaries):
                if number not in kept:
                    self._added.append(Unarmed(number, token.id, token.scope))

    def _add_event_subprocesses(self) -> None:
        """Wait for the event sub-processes of a scope that do not come from one of its event sub-processes."""
        inside: dict[int, list[int]] = {}
        for token in self._state.tokens:
            inside.setdefault(token.scope, []).append(token.node)
        for scope in self._state.scopes:
            tokens = inside.get(scope.id, [])
            has_others = any(not self._old.nodes[number].event_subprocess for number in tokens)
            if scope.kind not in ("process", "subprocess") or scope.interrupted or not has_others:
                continue
            if _begins_anew(self._next.get(scope.owner), armed=False):
                continue
            target = scope.node if scope.node < 0 else self._map.active(scope.node)
            if target is None:
                continue
            kept = self._kept(each.start_number for each in self._old.event_subprocesses(scope.node))
            for number in self._waited_for(each.start_number for each in self._new.event_subprocesses(target)):
                if number not in kept:
                    self._added.append(Unarmed(number, 0, scope.id))

    def _kept(self, numbers: Iterable[int]) -> set[int | None]:
        return {self._map.event(number) for number in self._waited_for(numbers, self._old)}

    def _waited_for(self, numbers: Iterable[int], graph: BpmnGraph | None = None) -> list[int]:
        """The ones of these events that have a catcher: the process itself throws the others."""
        events = (graph or self._new).events
        return [number for number in numbers if (event := events[number]) is not None and event.answered_by is not None]

    # -- incidents -----------------------------------------------------------------------------------

    def _move_incident(self, incident: Incident) -> bool:
        """Move an incident with its token. Return False if it is one of an event that could not be armed: the next
        activation tries again."""
        number = self._old.numbers.get(incident.element)
        target = None if number is None else self._map.found(number)
        if target is not None:
            incident.element = self._new.ids[target]
        if incident.resume != "arm":
            return True
        moved = self._kept_unarmed(Unarmed(*incident.data))
        if moved is not None:
            self._added.append(moved)
        return False


def _begins_anew(action: str | None, *, armed: bool) -> bool:
    """Return True if the next action of a token, after an incident or in the next activation, waits for the boundary
    events of its activity itself, or has left it."""
    return action in ("enter", "completed", "leave", "end") or (action == "body" and not armed)


def _is_compensated_inside(graph: BpmnGraph, number: int) -> bool:
    """Return True if an event sub-process of this sub-process compensates it."""
    starts = (each.start.event for each in graph.event_subprocesses(number) if graph.nodes[number].children)
    return any(event is not None and EVENTS[event.kind].compensates for event in starts)
