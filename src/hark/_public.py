"""The public names, gathered: what `from hark import …` gives. Nobody inside imports through here."""

from hark.app import Handle, Hark, Start
from hark.dialects.machine import Machine, step
from hark.dialects.workflow import workflow
from hark.model.errors import (
    AlreadySettled,
    AwakeableRejected,
    AwakeableTimedOut,
    CallFailed,
    Conflict,
    Duplicate,
    HarkError,
    InstanceCancelled,
    InstanceFailed,
    InvalidAnswer,
    InvalidDefinition,
    InvalidInput,
    InvalidOutcome,
    InvalidState,
    MalformedJson,
    NonDeterministic,
    NoTarget,
    NotAssigned,
    NotFound,
    NotOpen,
    PayloadTooLarge,
    RunFailed,
    SignalTimeout,
    StoreTooNew,
    StoreUnavailable,
    WrongColour,
)
from hark.model.outcomes import Await, Broadcast, Child, Done, Next, Retry, Spawn, Stop
from hark.model.values import (
    Awakeable,
    ChildView,
    Delivery,
    Event,
    Instance,
    NearMiss,
    Obstacle,
    Rate,
    Signal,
    Token,
    Wait,
    Waiting,
    Why,
)
from hark.programs.functions import AwakeableHandle, FunctionContext
from hark.programs.steps import Context
from hark.runtime.figures import Figures
from hark.runtime.reply import Reply
from hark.runtime.worker import Worker

__all__ = [
    "AlreadySettled", "Await", "Awakeable", "AwakeableHandle", "AwakeableRejected", "AwakeableTimedOut", "Broadcast",
    "CallFailed", "Child", "ChildView", "Conflict", "Context", "Delivery", "Done", "Duplicate", "Event", "Figures",
    "FunctionContext", "Handle", "Hark", "HarkError", "Instance", "InstanceCancelled", "InstanceFailed",
    "InvalidAnswer", "InvalidDefinition", "InvalidInput", "InvalidOutcome", "InvalidState", "Machine", "MalformedJson",
    "NearMiss", "Next", "NoTarget", "NonDeterministic", "NotAssigned", "NotFound", "NotOpen", "Obstacle",
    "PayloadTooLarge", "Rate", "Reply", "Retry", "RunFailed", "Signal", "SignalTimeout", "Spawn", "Start", "Stop",
    "StoreTooNew", "StoreUnavailable", "Token", "Wait", "Waiting", "Why", "Worker", "WrongColour", "step", "workflow",
]  # fmt: skip
