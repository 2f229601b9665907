"""Page: the list that every listing verb returns, with the cursor of the next page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Page(list[T]):
    """A list, and where the next one begins. It is a list in every other respect.

    Args:
        items: The items of the list.
        next: The attribute `next`.

    Attributes:
        next: The `after=` of the next page; None if this is the last one.

    Example:
        page = await app.list(status="failed")
        while page.next is not None:
            page = await app.list(status="failed", after=page.next)
    """

    __slots__ = ("next",)

    def __init__(self, items: Iterable[T] = (), next: str | None = None) -> None:
        super().__init__(items)
        self.next = next
