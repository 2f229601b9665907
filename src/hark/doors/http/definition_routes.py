"""The handlers of definitions: deploy, list, undeploy, draw; and the tasks of a job."""

from __future__ import annotations

import msgspec

from hark.doors.http import parsing
from hark.doors.http.parsing import Cursor
from hark.doors.http.read_routes import Limit
from hark.doors.http.responses import Response, json_response, text_response
from hark.doors.http.routes import HttpRequest
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.problem import Problem

_SVG = "image/svg+xml; charset=utf-8"
_FORMS = ("json", "yaml", "x-yaml", "vnd.yaml")


class Deployment(msgspec.Struct):
    """A definition that was deployed.

    Attributes:
        name: Its name, by which it is started.
        version: Its version: the newest one if nothing has changed.
    """

    name: str
    version: int


class Deployed(msgspec.Struct):
    """What was deployed.

    Attributes:
        deployed: The definitions.
    """

    deployed: list[Deployment]


class DefinitionView(msgspec.Struct):
    """A definition that can be started.

    Attributes:
        name: Its name.
        kind: "machine", "workflow", "job" or "bpmn".
        version: Its newest version.
    """

    name: str
    kind: str
    version: int


class Definitions(msgspec.Struct):
    """The definitions that can be started.

    Attributes:
        items: The definitions, by name.
        next: The `after` of the next page, or None.
    """

    items: list[DefinitionView]
    next: str | None


class DefinitionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A page of definitions.

    Attributes:
        limit: How many items a page has at most.
        after: The `next` of the page before.
    """

    limit: Limit = 100
    after: Cursor | None = None


class Undeployed(msgspec.Struct):
    """The definition cannot be started any more.

    Attributes:
        undeployed: Its name.
    """

    undeployed: str


async def deploy(request: HttpRequest) -> Response:
    """Deploy the job in the body: YAML or JSON, by its content type."""
    kind = (request.header_text(b"content-type") or "application/json").partition(";")[0].strip().lower()
    if kind.rpartition("/")[2] not in _FORMS:
        raise InvalidInput(
            f"A definition cannot be sent as {kind!r}. Send a job as application/yaml or application/json."
        )
    raw = await parsing.read_body(
        request.receive, request.header(b"content-length"), request.access.max_payload, parsing.ENVELOPE
    )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_a_job("The body is not UTF-8 text.") from None
    # With a line break it is the text of a job, never the path of a file on this machine.
    deployed = await request.app.deploy(f"{text}\n")
    return json_response(Deployed([Deployment(name, version) for name, version in deployed]), 201)


def _not_a_job(message: str) -> InvalidDefinition:
    return InvalidDefinition(message, problems=[Problem(None, None, message)])


async def definitions(request: HttpRequest) -> Response:
    query: DefinitionsQuery = request.query()
    found, after = await request.access.definition_page(limit=query.limit, after=query.after)
    return json_response(Definitions([DefinitionView(*one) for one in found], after))


async def undeploy(request: HttpRequest) -> Response:
    [name] = request.args
    await request.app.undeploy(name)
    return json_response(Undeployed(name))


async def definition_diagram(request: HttpRequest) -> Response:
    [name] = request.args
    return text_response(await request.access.definition_drawing(name), _SVG)


async def instance_diagram(request: HttpRequest) -> Response:
    [target] = request.args
    return text_response(await request.access.job_drawing(target), _SVG)


async def tasks(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.access.job_report(target))
