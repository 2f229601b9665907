"""What is lent to a function: a services by its worker, the reading of its input by its dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hark.programs.steps import StepServices


class InboxListener(Protocol):
    """Tells an activation at work that something came into its inbox."""

    def is_notified(self) -> bool: ...
    async def wait(self) -> None:
        """Until it is notified."""
        ...

    def reset(self, known: set[int]) -> None:
        """Forget earlier notifications. `known`: the inbox rows (seq) that need no further notification."""
        ...

    def close(self) -> None: ...


class FunctionServices(StepServices, Protocol):
    """What the worker lends to a function besides."""

    driving: Any  # the session whose code holds the loop right now: a watchdog looks at it

    @property
    def link(self) -> Callable[[str, str, int | None], str]:
        """The signed address of an awakeable, by its nonce, until a time."""
        ...

    def micros(self) -> int: ...
    def watch(self) -> None: ...
    def listen(self, id: str) -> InboxListener: ...


class InputCodec(Protocol):
    """Checks the input of a new instance and writes it as the text of its state.

    Machines use `json.Codec`, durable functions `ArgumentsCodec` (dialects/workflow.py).
    """

    def prepare(self) -> Any:
        """Resolve type hints; raises InvalidDefinition when that is not possible."""
        ...

    def build(self, value: object = None, *, limit: int | None = None, what: str = "input") -> Any:
        """The checked input; raises InvalidInput when it does not match the definition."""
        ...

    def dump(self, value: Any, limit: int | None = None) -> str:
        """What `build` returned, as JSON text."""
        ...
