"""The public names, as `from hark import …` gives them. Code inside the package imports from the modules instead.

The names of jobs and functions are imported at their first use: a program without them need not load them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hark.app import Handle, Hark, Start
from hark.engine.turns.reply import Reply
from hark.engine.worker.worker import Worker
from hark.model.errors import (
    AlreadyClaimed,
    AlreadySettled,
    AwakeableRejected,
    AwakeableTimedOut,
    BpmnError,
    CallFailed,
    Conflict,
    Duplicate,
    HarkError,
    InstanceCancelled,
    InstanceFailed,
    InstanceHeld,
    InvalidAnswer,
    InvalidDefinition,
    InvalidInput,
    InvalidMigration,
    InvalidOutcome,
    InvalidState,
    MalformedJson,
    MissingExtra,
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
    TaskLost,
    WouldBlockEventLoop,
)
from hark.model.names import parse_awakeable_id
from hark.model.nats import Nats
from hark.model.outcomes import Await, Broadcast, Child, Done, Next, Outcome, Retry, Spawn, Stop
from hark.model.page import Page
from hark.model.problem import Problem
from hark.model.report import LiveProblem, Report
from hark.model.retry_policy import RetryPolicy
from hark.model.values import (
    Awakeable,
    Blocker,
    ChildView,
    DefinitionView,
    Delivery,
    Entry,
    Event,
    Instance,
    NearMiss,
    Preview,
    Rate,
    Schedule,
    Signal,
    Token,
    Wait,
    Waiting,
    Why,
    WorkerInfo,
)
from hark.programs.machines.machine import Machine, step
from hark.programs.machines.steps import Context

if TYPE_CHECKING:
    from hark.app.job_loading import load_job
    from hark.programs.awakeable_handle import AwakeableHandle
    from hark.programs.functions.function_context import FunctionContext
    from hark.programs.functions.workflow import Workflow, workflow
    from hark.programs.jobs.file import Dag, Job
    from hark.programs.jobs.tasks.task_context import TaskContext

LATER: Final = {
    "AwakeableHandle": "hark.programs.awakeable_handle",
    "Dag": "hark.programs.jobs.file",
    "FunctionContext": "hark.programs.functions.function_context",
    "Job": "hark.programs.jobs.file",
    "TaskContext": "hark.programs.jobs.tasks.task_context",
    "Workflow": "hark.programs.functions.workflow",
    "load_job": "hark.app.job_loading",
    "workflow": "hark.programs.functions.workflow",
}
"""The names that are imported at their first use, with their modules."""

__all__ = [
    "AlreadyClaimed", "AlreadySettled", "Await", "Awakeable", "AwakeableHandle", "AwakeableRejected",
    "AwakeableTimedOut", "Blocker", "BpmnError", "Broadcast", "CallFailed", "Child", "ChildView", "Conflict", "Context",
    "Dag", "DefinitionView", "Delivery", "Done", "Duplicate", "Entry", "Event", "FunctionContext", "Handle", "Hark",
    "HarkError", "Instance", "InstanceCancelled", "InstanceFailed", "InstanceHeld", "InvalidAnswer",
    "InvalidDefinition", "InvalidInput", "InvalidMigration", "InvalidOutcome", "InvalidState", "Job", "LiveProblem",
    "Machine", "MalformedJson", "MissingExtra", "Nats", "NearMiss", "Next", "NoTarget", "NonDeterministic",
    "NotAssigned", "NotFound", "NotOpen", "Outcome", "Page", "PayloadTooLarge", "Preview", "Problem", "Rate", "Reply",
    "Report", "Retry", "RetryPolicy", "RunFailed", "Schedule", "Signal", "SignalTimeout", "Spawn", "Start", "Stop",
    "StoreTooNew", "StoreUnavailable", "TaskContext", "TaskLost", "Token", "Wait", "Waiting", "Why", "Worker",
    "WorkerInfo", "Workflow", "WouldBlockEventLoop", "load_job", "parse_awakeable_id", "step", "workflow",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
