"""Hark: durable workflows that wait for the outside world."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hark._public import *

__version__ = "0.1.0"

__all__ = [
    "AlreadyClaimed",
    "AlreadySettled",
    "Await",
    "Awakeable",
    "AwakeableHandle",
    "AwakeableRejected",
    "AwakeableTimedOut",
    "Blocker",
    "BpmnError",
    "Broadcast",
    "CallFailed",
    "Child",
    "ChildView",
    "Conflict",
    "Context",
    "Dag",
    "Delivery",
    "Done",
    "Duplicate",
    "Event",
    "FunctionContext",
    "Handle",
    "Hark",
    "HarkError",
    "Instance",
    "InstanceCancelled",
    "InstanceFailed",
    "InvalidAnswer",
    "InvalidDefinition",
    "InvalidInput",
    "InvalidOutcome",
    "InvalidState",
    "Job",
    "Machine",
    "MalformedJson",
    "MissingExtra",
    "Nats",
    "NearMiss",
    "Next",
    "NoTarget",
    "NonDeterministic",
    "NotAssigned",
    "NotFound",
    "NotOpen",
    "Outcome",
    "PayloadTooLarge",
    "Problem",
    "Rate",
    "Reply",
    "Retry",
    "RetryPolicy",
    "RunFailed",
    "Schedule",
    "Signal",
    "SignalTimeout",
    "Spawn",
    "Start",
    "Stop",
    "StoreTooNew",
    "StoreUnavailable",
    "TaskContext",
    "TaskLost",
    "Token",
    "Wait",
    "Waiting",
    "Why",
    "Worker",
    "WorkerInfo",
    "Workflow",
    "WouldBlockEventLoop",
    "load_job",
    "step",
    "workflow",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported at the first use: the command line prints its help and completes words without the engine.
    if name not in __all__:
        raise AttributeError(f"module 'hark' has no attribute {name!r}")
    from hark import _public

    if name in _public.LATER:
        globals()[name] = getattr(_public, name)
    else:
        globals().update({public: getattr(_public, public) for public in __all__ if public not in _public.LATER})
    return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
