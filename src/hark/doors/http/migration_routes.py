"""The handlers that move instances to another version, and that fork them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hark.doors.http.parsing import Id, Name
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest, Route
from hark.doors.http.write_routes import Version
from hark.model.errors import InvalidInput
from hark.model.values import Instance, Preview

_FILTERS = ("status", "definition", "kind", "tags", "key_prefix", "created_after", "created_before")


class MigrateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The instances to move: `target`, or filters with a definition.

    Attributes:
        to_version: The version to go on with.
        target: One instance, by its id or correlation key.
        status: Only those with this status; by default all that have not finished.
        definition: Only those of this definition.
        kind: Only those of this kind.
        tags: Only those with all of these tags.
        key_prefix: Only those whose correlation key begins with this text.
        created_after: Only those started later.
        created_before: Only those started earlier.
        state: Of machines: the function from the old state to the new one, as `module:name`, which a worker imports.
        steps: Of machines: the new name of each step that is not called the same.
        elements: Of processes: the new id of each element that has another one; an empty text for an event that is
            waited for anew.
        preview: Whether to say only what would happen.
    """

    to_version: Version
    target: Name | None = None
    status: str | None = None
    definition: Name | None = None
    kind: str | None = None
    tags: dict[str, str] | None = None
    key_prefix: Name | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    state: str | None = None
    steps: dict[str, str] | None = None
    elements: dict[str, str] | None = None
    preview: bool = False


class ForkBody(msgspec.Struct, forbid_unknown_fields=True):
    """The point at which the new instance begins.

    Attributes:
        at: Of a function: the number of the last entry of its journal that is kept; -1 keeps none.
        step: Of a machine: the step to begin with.
        state: Of a machine: the state to begin with; by default its present one.
        input: Of a function: its new input; by default the same.
        version: The version of the definition; by default the same.
        id: The id of the new instance; by default a new one is made.
        correlation_key: Its correlation key.
    """

    at: int | None = None
    step: Name | None = None
    state: Any = None
    input: Any = None
    version: Version | None = None
    id: Id | None = None
    correlation_key: Name | None = None


async def migrate(request: HttpRequest) -> Response:
    body = await request.body_as(MigrateBody)
    filters = {name: value for name in _FILTERS if (value := getattr(body, name)) is not None}
    if (body.target is None) is (not filters):
        raise InvalidInput("Send either `target` or filters with a `definition`.")
    wanted: Any = filters if body.target is None else body.target
    by = request.caller.name
    how: dict[str, Any] = {
        "to_version": body.to_version, "state": body.state, "steps": body.steps, "elements": body.elements, "by": by,
    }  # fmt: skip
    if body.preview:
        return json_response(await request.app.migrate(wanted, **how, preview=True))
    handle = await request.app.migrate(wanted, **how)
    return json_response(await handle.get(), 201)


async def fork(request: HttpRequest) -> Response:
    [target] = request.args
    body = await request.body_as(ForkBody)
    handle = await request.app.fork(target, **msgspec.structs.asdict(body), by=request.caller.name)
    return json_response(await handle.get(), 201)


ROUTES = [
    Route("POST", "/migrations", migrate, "deploy",
          "Move live instances to another version of their definition, by a bulk instance; or preview that.",
          {201: Instance, 200: Preview}, (400, 404, 413), body=MigrateBody,
          id="migrateInstances", tag="Instances"),
    Route("POST", "/instances/{target}/fork", fork, "operate",
          "Start an instance from a point in the past of another one.", {201: Instance}, (400, 404, 409, 413),
          body=ForkBody,
          id="forkInstance", tag="Instances"),
]  # fmt: skip
