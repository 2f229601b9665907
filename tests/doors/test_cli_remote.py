"""D4: a command is written once, against the verbs: those of a server come from the table of routes."""

import ast
import inspect
from pathlib import Path

import pytest

from hark import Hark
from hark.app.door_access import DoorAccess
from hark.doors import cli
from hark.doors.cli import remote
from hark.doors.http.api import ROUTES

FOLDER = Path(inspect.getfile(cli)).parent


def verbs_of_commands() -> set[str]:
    """The attributes of `hark`, of `engine` and of `door_access(hark)` in the modules of the commands."""
    found = set()
    for path in FOLDER.glob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "Engine" in text or "open_engine" in text else ():
            if isinstance(node, ast.Attribute):
                owner = node.value
                called = owner.func if isinstance(owner, ast.Call) else owner
                if isinstance(called, ast.Name) and (called.id, owner is called) in (
                    ("hark", True),
                    ("engine", True),
                    ("door_access", False),
                ):
                    found.add(node.attr)
    return found


def test_d4_every_verb_of_a_command_is_one_of_the_engine_and_one_of_a_server() -> None:
    verbs = verbs_of_commands()
    assert {"start", "events", "job_report", "definitions", "get", "ids_beginning", "worker"} <= verbs
    assert {verb for verb in verbs if not hasattr(remote.RemoteHark, verb)} == set()
    assert {verb for verb in verbs if not hasattr(Hark, verb) and not hasattr(DoorAccess, verb)} == set()


def test_d4_every_operation_of_a_server_is_in_the_table_of_routes() -> None:
    named = [
        node.args[0].value
        for node in ast.walk(ast.parse(inspect.getsource(remote)))
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        in ("_verb", "_call")
        and isinstance(node.args[0], ast.Constant)
    ]
    assert len(named) > 25
    assert set(named) <= {route.id for route in ROUTES}


@pytest.mark.parametrize(
    ("operation", "values", "path"),
    [
        ("signalInstance", ["order:4/2", "é"], "/instances/order%3A4%2F2/signals/%C3%A9"),
        ("drawInstance", ["a b"], "/instances/a%20b/diagram.svg"),
        ("listInstances", [], "/instances"),
    ],
)
def test_d4_arguments_of_a_path_are_encoded(operation: str, values: list[str], path: str) -> None:
    [route] = [route for route in ROUTES if route.id == operation]
    assert remote._path(route, iter(values)) == path
