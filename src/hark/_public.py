"""The public names, gathered: what `from hark import …` gives. Nobody inside imports through here."""

from hark.app import Handle, Hark, Start
from hark.dialects.machine import Machine, step
from hark.model.errors import (
    AlreadySettled,
    AwakeableRejected,
    AwakeableTimedOut,
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
    NoTarget,
    NotAssigned,
    NotFound,
    NotOpen,
    PayloadTooLarge,
    SignalTimeout,
    StoreTooNew,
    StoreUnavailable,
    WrongColour,
)
from hark.model.outcomes import Await, Broadcast, Child, Done, Next, Retry, Spawn, Stop
from hark.model.values import Awakeable, ChildView, Delivery, Event, Instance, Rate, Signal, Wait
from hark.programs.steps import Context
from hark.runtime.figures import Figures
from hark.runtime.reply import Reply
from hark.runtime.worker import Worker

__all__ = [
    "AlreadySettled", "Await", "Awakeable", "AwakeableRejected", "AwakeableTimedOut", "Broadcast", "Child", "ChildView",
    "Conflict", "Context", "Delivery", "Done", "Duplicate", "Event", "Figures", "Handle", "Hark", "HarkError",
    "Instance", "InstanceCancelled", "InstanceFailed", "InvalidAnswer", "InvalidDefinition", "InvalidInput",
    "InvalidOutcome", "InvalidState", "Machine", "MalformedJson", "Next", "NoTarget", "NotAssigned", "NotFound",
    "NotOpen", "PayloadTooLarge", "Rate", "Reply", "Retry", "Signal", "SignalTimeout", "Spawn", "Start", "Stop",
    "StoreTooNew", "StoreUnavailable", "Wait", "Worker", "WrongColour", "step",
]  # fmt: skip
