"""BpmnSpec: a BPMN process as data, as it is stored and interpreted.

The reader of BPMN files (programs/bpmn/file/) makes it, already checked; `programs/bpmn/interpreter/` interprets it. A
node is an event, an activity or a gateway; nodes and flows are numbered in document order, and refer to each other by
number.

A *source* is JSON whose texts may be expressions: `=total > 3` is FEEL, a text with `${…}` in it is JUEL, and any other
text is itself. A *condition* is a text that is always an expression: the reader puts `=` before one without a marker.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from hark.model.bpmn_state import START as START  # what imports the spec uses it too
from hark.programs.bpmn.bpmn_elements import EVENTS, EventKind, NodeKind

ChangeKind = Literal["create", "update", "delete"]
LoopKind = Literal["parallel", "sequential", "standard"]

ROOT = -1
"""The scope of nodes that are directly in the process."""


class Assignment(Struct, frozen=True, omit_defaults=True):
    """A variable, and the source of its value. `target` may be a path in zeebe files: `order.total`."""

    target: str
    source: Any


class EventSpec(Struct, frozen=True, omit_defaults=True):
    """The event that a node catches or throws.

    Attributes:
        kind: What it is.
        name: Of a signal or message: a source that gives its name. Of a link: its name. Of an error or escalation: its
            code, a source; None catches every code.
        key: Of a message: a source that gives the correlation key; None: that of the instance.
        timer: Of a timer: what `text` is.
        text: Of a timer: a source that gives an ISO 8601 text or, for a cycle, maybe a cron expression.
        until: Of a cycle: a source that gives the date after which it does not fire any more (Flowable's `endDate`).
        condition: Of a conditional event.
        variables: Of a conditional event: only changes of these variables count; empty: of all.
        changes: Of a conditional event: only changes of these kinds count; empty: of all. Hark deletes no variables.
        activity: Of a thrown compensation: the number of the activity to compensate; None: all of the scope.
        code_variable: Of a caught error or escalation: the variable that gets the code.
        message_variable: Of a caught error: the variable that gets the message.
        message: Of a thrown error: a source that gives its message.
        payload: Of a thrown signal or message: the variables that travel with it.
        copies_all: Of a thrown signal: all variables travel with it.
        terminates: Of a terminate event: its scope, the multi-instance activity around it (`loop`), or everything: the
            instance and the processes that called it (Flowable's `terminateMultiInstance` and `terminateAll`).
    """

    kind: EventKind
    name: Any = None
    key: Any = None
    timer: Literal["date", "duration", "cycle"] | None = None
    text: Any = None
    until: Any = None
    condition: str | None = None
    variables: tuple[str, ...] = ()
    changes: tuple[ChangeKind, ...] = ()
    activity: int | None = None
    code_variable: str | None = None
    message_variable: str | None = None
    message: Any = None
    payload: tuple[Assignment, ...] = ()
    copies_all: bool = False
    terminates: Literal["scope", "loop", "all"] = "scope"


class LoopSpec(Struct, frozen=True, omit_defaults=True):
    """The repetition of an activity.

    Attributes:
        kind: `parallel` and `sequential` are multi-instance; `standard` repeats while its condition holds.
        cardinality: Of a multi-instance: a source that gives the number of instances.
        collection: Of a multi-instance: a source that gives a list. A plain text is the name of a variable.
        item: The variable that has the item of the collection.
        completion: A condition: when it holds after the end of an instance, the others are cancelled.
        output_collection: The variable that gets the list of all outputs, in the order of the instances.
        output: A source, evaluated at the end of each instance, whose values make up `output_collection`.
        condition: Of a standard loop; None: it always holds.
        test_before: Of a standard loop: the condition is tested before the first time too.
        maximum: Of a standard loop: at most this often.
    """

    kind: LoopKind
    cardinality: Any = None
    collection: Any = None
    item: str | None = None
    completion: str | None = None
    output_collection: str | None = None
    output: Any = None
    condition: str | None = None
    test_before: bool = False
    maximum: int | None = None


class UserSpec(Struct, frozen=True, omit_defaults=True):
    """The people a user task is for, and the question it asks. All values are sources.

    `assignee` gives a text, `users` and `groups` give texts or lists of texts (a text may have several, separated by
    commas), `due` an ISO 8601 date or duration. `schema` is the JSON Schema of the answer. `id_variable` gives the name
    of the variable that gets the id of the awakeable, `by_variable` that of the one that gets who has answered.
    """

    assignee: Any = None
    users: Any = None
    groups: Any = None
    due: Any = None
    description: Any = None
    schema: dict[str, Any] | None = None
    id_variable: Any = None
    by_variable: Any = None


class CallSpec(Struct, frozen=True, omit_defaults=True):
    """The process that a call activity calls, and the variables that go in and come out.

    Attributes:
        process: A source that gives the id of the process.
        version: A source that gives its version; None: the newest.
        all_in: All variables go in.
        all_out: All variables come out.
        inputs: The variables of the called process; sources see the caller's variables.
        outputs: Variables of the caller; sources see the called process's variables.
        key: A source that gives the correlation key of the called instance; None: it has none.
        id_variable: A source that gives the name of the variable that gets the id of the called instance.
    """

    process: Any
    version: Any = None
    all_in: bool = True
    all_out: bool = True
    inputs: tuple[Assignment, ...] = ()
    outputs: tuple[Assignment, ...] = ()
    key: Any = None
    id_variable: Any = None


class NodeSpec(Struct, frozen=True, omit_defaults=True):
    """A node. Numbers are those of nodes and flows in the spec.

    Attributes:
        id: The id of the element; one without an id gets `{tag}@{line}`, with a number behind it if that is taken.
        kind: `task` is one that does nothing: a task without a type, or a manual task. `service` is run by a handler:
            a service or business rule task, or a send task or message throw event that has one. `send` sends a message.
        line: Its line in the file.
        scope: The sub-process it is in, or ROOT.
        name: Its name in the diagram.
        incoming: Its incoming flows, in document order.
        outgoing: Its outgoing flows, in document order.
        default: The flow that is taken if no condition of another one holds.
        event: What an event catches or throws; also of a receive task and of a `send`.
        further: Of an event with several definitions: nodes behind all others, one for each definition after the first.
            One that catches waits for all of them, and any of them is enough; one that throws throws them in order.
        of: Of such a further node: the node of the element.
        host: Of a boundary event: the activity it is attached to.
        interrupting: Of a boundary event, and of the start event of an event sub-process.
        boundaries: The boundary events attached to this activity, without those for compensation.
        children: Of a sub-process: the nodes directly in it.
        event_subprocess: It is a sub-process that its start event triggers.
        transaction: It is a sub-process that can be cancelled.
        compensation: The activity that compensates this one.
        for_compensation: It is only run to compensate another.
        loop: How it is repeated.
        variables: Of a sub-process: local variables that it begins with, with their values; `inputs` come after them.
        skip: A condition: its work is skipped if that holds and skip expressions are on
            (programs/bpmn/interpreter/skips.py).
        inputs: Local variables that are set before it runs; sources see the variables around it.
        outputs: Variables that are set around it when it has ended; sources see its local variables.
        keeps_result: Its result, or what came with its event, stays local: only `outputs` go out. Otherwise it is
            merged into the variables too.
        result_is_local: Of a multi-instance task: its result is a variable of each instance, which ends with it.
        handler: Of a `service`: the name of its handler; a source.
        retries: Of a `service`: attempts in all.
        retry_delay: Seconds between two attempts; None: the delays that jobs have.
        headers: Of a `service`: texts that the file has for its handler.
        script: A source that gives the value of a script task.
        result: The variable that gets the value of a script task or the result of a `service`; None: an object is
            merged into the variables.
        user: Of a user task.
        call: Of a call activity.
        activation: Of a complex gateway that joins: the condition under which it goes on; it knows `activationCount`.
    """

    id: str
    kind: NodeKind
    line: int = 0
    scope: int = ROOT
    name: str | None = None
    incoming: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    default: int | None = None
    event: EventSpec | None = None
    further: tuple[int, ...] = ()
    of: int | None = None
    host: int | None = None
    interrupting: bool = True
    boundaries: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    event_subprocess: bool = False
    transaction: bool = False
    compensation: int | None = None
    for_compensation: bool = False
    loop: LoopSpec | None = None
    variables: dict[str, Any] = {}
    skip: str | None = None
    inputs: tuple[Assignment, ...] = ()
    outputs: tuple[Assignment, ...] = ()
    keeps_result: bool = False
    result_is_local: bool = False
    handler: Any = None
    retries: int = 3
    retry_delay: float | None = None
    headers: dict[str, str] = {}
    script: Any = None
    result: str | None = None
    user: UserSpec | None = None
    call: CallSpec | None = None
    activation: str | None = None


class FlowSpec(Struct, frozen=True, omit_defaults=True):
    """A sequence flow. One without an id gets `{source}->{target}`, with a number behind it if that is taken.

    With skip expressions on, `skip` decides instead of `condition` whether it is taken."""

    id: str
    source: int
    target: int
    condition: str | None = None
    name: str | None = None
    skip: str | None = None


class BpmnSpec(Struct, frozen=True, omit_defaults=True):
    """A checked process.

    Attributes:
        id: Its id.
        nodes: Its nodes, in document order.
        flows: Its flows, in document order.
        name: Its name.
        line: Its line in the file.
        variables: Variables that an instance begins with, with their values; what it is started with comes after them.
    """

    id: str
    nodes: tuple[NodeSpec, ...]
    flows: tuple[FlowSpec, ...] = ()
    name: str | None = None
    line: int = 0
    variables: dict[str, Any] = {}

    @property
    def starts(self) -> list[NodeSpec]:
        """The start events of the process itself."""
        return [node for node in self.nodes if node.kind == "start" and node.scope == ROOT]

    @property
    def waiting_starts(self) -> list[NodeSpec]:
        """The start events at which an instance that is started by name waits, if it has no other: their conditions
        hold sooner or later."""
        if self.none_start is not None:
            return []
        return [node for node in self.starts if node.event is not None and EVENTS[node.event.kind].begins_by_itself]

    @property
    def starts_by_name(self) -> bool:
        return self.none_start is not None or bool(self.waiting_starts)

    @property
    def none_start(self) -> NodeSpec | None:
        """The start event of an instance that is started by name."""
        return next((node for node in self.starts if node.event is None or node.event.kind == "none"), None)


class BpmnSource(Struct, frozen=True, omit_defaults=True):
    """The source of a version of a process in the store: the process to interpret, and the file, for its diagram."""

    process: BpmnSpec
    xml: str


def step_of_start(element: str) -> str:
    """The first step of an instance that this start event starts."""
    return f"{START}:{element}"


decode_bpmn = msgspec.json.Decoder(BpmnSource).decode
"""Read a process from its stored source."""
_encoder = msgspec.json.Encoder()


def encode_bpmn(source: BpmnSource) -> str:
    """The source of a process as it is stored."""
    return _encoder.encode(source).decode()
