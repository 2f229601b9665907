"""The form of lists over HTTP: {"items": …, "next": …}; `next` is the `after` of the next page, or null."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from hark.doors.http.parsing import Cursor
from hark.doors.http.responses import Response, json_response
from hark.model.page import Page

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class PageQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A page; the query of a list adds its filters.

    Attributes:
        limit: How many items a page has at most.
        after: The `next` of the page before.
    """

    limit: Limit = 100
    after: Cursor | None = None


def page_of(item: Any, name: str, items: str, order: str, next: Any = str | None, summary: str | None = None) -> Any:
    """The type of a page for /openapi.json, in which each list has a schema and a name of its own."""
    text = (
        f"{summary or f'A page of {items}.'}\n\nAttributes:\n    items: The {items}, {order}.\n"
        "    next: The `after` of the next page, or None."
    )
    fields = [("items", list[item]), ("next", next)]
    return msgspec.defstruct(name, fields, namespace={"__doc__": text})


def page_response(page: Page[Any]) -> Response:
    return json_response({"items": page, "next": page.next})
