"""The lanes of shell commands and agents: which of them this process can run. command_tasks.py runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hark.engine.commands.lease_relay import LeaseRelay
from hark.engine.worker.lazy_program import LazyProgram
from hark.engine.worker.registry import LaneProgram, Registry
from hark.model import json
from hark.model.activation import TASK_TRAITS
from hark.model.errors import InvalidInput
from hark.model.lanes import SHELL, agent_lane, lane_name_problem


@dataclass(frozen=True)
class CommandStore:
    """The part of the store of a task that a command needs.

    Attributes:
        url: Gives the URL by which another process reaches it; None if none can.
        schema: Gives its schema, in databases that have schemas.
        open_awakeables: The ids of the pending awakeables of a task.
        lease: The lease of the worker.
    """

    url: Callable[[], str | None]
    schema: Callable[[], str]
    open_awakeables: Callable[[str], Awaitable[list[str]]]
    lease: LeaseRelay


def register_shell(registry: Registry, store: CommandStore) -> None:
    """Let this process run shell tasks."""
    registry.add_lane(SHELL, LazyProgram(TASK_TRAITS, partial(_load, store)))


def register_agents(registry: Registry, store: CommandStore, agents: Mapping[str, Sequence[str]]) -> None:
    """Let this process run the tasks of these agents, with these command lines instead of those that it had."""
    for type, argv in agents.items():
        program = LazyProgram(TASK_TRAITS, partial(_load, store, type, argv))
        registry.add_lane(agent_lane(type), program, replace=True)


def _load(store: CommandStore, type: str | None = None, argv: Sequence[str] = ()) -> LaneProgram:
    from hark.engine.commands.command_tasks import CommandProgram

    return CommandProgram(store, type, argv)


def agents_of_environment(text: str | None) -> dict[str, tuple[str, ...]]:
    """The agents in the text of `HARK_AGENTS`: JSON, the command lines by type. None and an empty text have none.

    Raises:
        InvalidInput: It is malformed.
    """
    if not text:
        return {}
    try:
        return check_agents(json.parse(text, what="text"))
    except InvalidInput as error:
        raise InvalidInput(
            f"HARK_AGENTS: {str(error).rstrip('.')}. It is JSON with the command line of each agent, such as "
            '{"opencode": ["opencode", "run"]}.'
        ) from None


def check_agents(agents: object) -> dict[str, tuple[str, ...]]:
    """Check the command lines of agents by type, as an app was given them.

    Raises:
        InvalidInput: They are not, or a type has a name that a lane cannot have.
    """
    if not isinstance(agents, Mapping):
        raise InvalidInput(f'agents must be a dict such as {{"opencode": ["opencode", "run"]}}, not {agents!r}.')
    found = {}
    for type, argv in agents.items():
        if not isinstance(type, str) or not type or (problem := lane_name_problem(type, "agent")) is not None:
            raise InvalidInput(f"agents: {problem if isinstance(type, str) and type else 'a type must be text.'}")
        words = isinstance(argv, list | tuple) and argv and all(isinstance(word, str) for word in argv)
        if not words or not argv[0] or any("\0" in word for word in argv):
            raise InvalidInput(
                f'agents[{type!r}] must be a command line as a list of texts, such as ["opencode", "run"], '
                f"not {argv!r}."
            )
        found[type] = tuple(argv)
    return found
