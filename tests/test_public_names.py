"""The names people import. One that goes is a breaking change; one that comes is a promise."""

import ast
import inspect
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import hark
from hark.model import errors

NAMES = {
    # the engine
    "Hark", "Handle", "Reply", "Start", "Rate", "Nats", "Worker",
    # machines
    "Machine", "step", "Context", "Next", "Retry", "Await", "Spawn", "Child", "Done", "Stop", "Broadcast", "Outcome",
    # durable functions
    "workflow", "Workflow", "FunctionContext", "AwakeableHandle", "RetryPolicy",
    # jobs
    "Job", "Dag", "load_job", "Problem", "TaskContext",
    # what the engine shows
    "Awakeable", "ChildView", "DefinitionView", "Delivery", "Entry", "Event", "Instance", "LiveProblem", "Page",
    "Preview", "Report", "Schedule", "Signal",
    "Token", "Wait", "WorkerInfo",
    "Why", "Waiting", "Blocker", "NearMiss",
    "parse_awakeable_id",
    # errors
    "HarkError", "InvalidInput", "MalformedJson", "PayloadTooLarge", "InvalidState", "InvalidAnswer", "NotAssigned",
    "InvalidDefinition", "InvalidMigration", "InvalidOutcome", "NotFound", "NoTarget", "Duplicate", "Conflict",
    "AlreadyClaimed", "AlreadySettled", "TaskLost",
    "InstanceFailed", "InstanceCancelled", "InstanceHeld", "SignalTimeout", "AwakeableTimedOut", "AwakeableRejected",
    "BpmnError", "RunFailed", "CallFailed", "NonDeterministic", "StoreUnavailable", "StoreTooNew", "NotOpen",
    "WouldBlockEventLoop", "MissingExtra",
}  # fmt: skip


def test_the_exported_names_are_these_and_no_others() -> None:
    assert set(hark.__all__) == NAMES


def test_names_that_are_not_exported_do_not_exist() -> None:
    assert not hasattr(hark, "nothing_of_ours")
    assert set(NAMES) < set(dir(hark))


def test_each_name_is_listed_once_and_in_order() -> None:
    assert hark.__all__ == sorted(hark.__all__)
    assert len(hark.__all__) == len(set(hark.__all__))
    assert all(hasattr(hark, name) for name in hark.__all__)


def test_every_error_is_importable_from_hark() -> None:
    defined = {
        name for name, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__
    }
    assert defined <= NAMES
    for name in defined:
        assert issubclass(getattr(hark, name), hark.HarkError)


VERBS = {
    "start", "start_many", "signal_with_start", "signal", "broadcast", "message", "resolve", "reject", "claim",
    "unclaim", "awakeable", "awakeables", "wait_for_awakeable", "get", "list", "result", "journal", "events",
    "events_after", "waits", "why", "workers", "cancel", "retry", "schedule", "schedules", "pause_schedule",
    "resume_schedule", "trigger_schedule", "unschedule", "definitions", "check", "migrate", "fork", "retire",
    "unretire", "sweep",
    "export", "forget", "create_token", "deploy", "undeploy", "tokens", "revoke_token", "rotate_secret",
    "set_variables", "register", "handler", "gate", "worker", "asgi", "serve", "is_open",
}  # fmt: skip


def test_the_public_verbs_of_an_app_and_a_handle_are_these_and_no_others() -> None:
    """What only the HTTP server and the command line need is in DoorAccess, not here."""
    assert {name for name in dir(hark.Hark) if not name.startswith("_")} == VERBS
    assert {name for name in dir(hark.Handle) if not name.startswith("_")} == {
        "id", "get", "result", "wait_for", "signal", "cancel"
    }  # fmt: skip
    assert {name for name in dir(hark.Worker) if not name.startswith("_")} == {
        "open",
        "tally",
        "start",
        "stop",
        "settle",
    }


def test_what_the_public_verbs_return_is_importable_from_hark() -> None:
    """A caller who annotates a variable with it does not have to search for it inside the package."""
    shown: set[str] = set()
    for owner in (hark.Hark, hark.Handle, hark.Reply, hark.Worker):
        for name, member in inspect.getmembers(owner):
            function = member.fget if isinstance(member, property) else member
            returned = getattr(function, "__annotations__", {}).get("return")
            if not name.startswith("_") and returned is not None:
                shown |= {part.id for part in ast.walk(ast.parse(str(returned))) if isinstance(part, ast.Name)}
    assert {"Reply", "Handle", "Instance", "Event", "Wait", "Awakeable", "Delivery"} <= shown
    of_typing = {"Any", "Callable", "F", "Self", "T", "R_co", "None"}
    assert {name for name in shown if name[0].isupper()} - of_typing <= NAMES


def test_the_version_is_the_distributions() -> None:
    assert hark.__version__ == metadata.version("hark")


def test_the_package_is_typed() -> None:
    assert (Path(inspect.getfile(hark)).parent / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(hark, name))


def test_importing_hark_does_not_import_optional_dependencies() -> None:
    """A first import is paid by every process: databases, the command line and pytest come when they are used."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, hark, hark.model.schema; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    heavy = {
        "asyncpg",
        "apsw",
        "typer",
        "rich",
        "click",
        "pytest",
        "pydantic",
        "starlette",
        "sqlite3",
        "yaml",
        "jsonschema_rs",
    }
    assert heavy.isdisjoint(loaded)


def test_nothing_public_shadows_a_builtin_on_star_import() -> None:
    namespace: dict[str, object] = {}
    exec("from hark import *", namespace)
    assert set(namespace) - {"__builtins__"} == NAMES
