"""AwakeableHandle: the result of `ctx.awakeable` and `task.awakeable`, an awakeable in the code that created it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic

from hark.model.links import read_link

if TYPE_CHECKING:  # a TypeVar with a default: `AwakeableHandle` alone means AwakeableHandle[Any], also in strict mode
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class AwakeableHandle(Generic[T]):
    """An awakeable in the function or handler that created it. Await it to get the answer.

    Awaiting raises AwakeableRejected if it was rejected, AwakeableTimedOut if it was not answered in time.

    Attributes:
        id: The id to pass to `app.resolve`, `hark awakeable resolve` or the HTTP API.
        url: The signed link to the answer page.
    """

    __slots__ = ("__hark_promise__", "_link", "id")

    def __init__(self, id: str, link: Callable[[], str], answer: Awaitable[T]) -> None:
        self.id = id
        self._link = link
        self.__hark_promise__ = answer

    @property
    def url(self) -> str:
        """The signed link to the answer page. It is a credential: anyone who has it can answer, once."""
        return read_link(self._link())  # signed on access: most replays do not use it

    def __await__(self) -> Generator[Any, None, T]:
        return self.__hark_promise__.__await__()

    def __repr__(self) -> str:
        return f"AwakeableHandle({self.id!r})"  # without the url: it is a credential
