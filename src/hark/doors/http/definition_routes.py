"""The handlers of definitions: deploy, list, undeploy, draw; the tasks of a job and the variables of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from hark.app.deploying import is_xml
from hark.doors.http import parsing
from hark.doors.http.pages import PageQuery, page_of, page_response
from hark.doors.http.parsing import Name
from hark.doors.http.responses import Response, json_response, text_response
from hark.doors.http.routes import HttpRequest, answer_with
from hark.doors.http.write_routes import Version
from hark.model.errors import InvalidDefinition
from hark.model.problem import Problem
from hark.model.values import DefinitionView

_SVG = "image/svg+xml; charset=utf-8"
# The drawing has its colours, for light and dark, in a <style>.
_POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
_JOB_FORMS = ("json", "yaml", "x-yaml", "vnd.yaml")
_BPMN_FORMS = ("xml", "bpmn+xml")
_MAX_BPMN = 20_000_000  # bytes: 10 million characters, the most that a BPMN file may have, in UTF-16


class Deployment(msgspec.Struct):
    """A definition that was deployed.

    Attributes:
        name: Its name, by which it is started.
        version: Its version: the newest one if nothing has changed.
    """

    name: str
    version: int


class Deployed(msgspec.Struct):
    """The definitions that were deployed.

    Attributes:
        deployed: The definitions.
    """

    deployed: list[Deployment]


Definitions = page_of(
    DefinitionView, "Definitions", "definitions", "by name", summary="The definitions that can be started."
)


class DefinitionsQuery(PageQuery):
    """Filters of definitions.

    Attributes:
        name: Only this definition.
        all_versions: Every version of each, instead of the one that a start by name chooses.
    """

    name: Name | None = None
    all_versions: bool = False


class Undeployed(msgspec.Struct):
    """The definition cannot be started any more.

    Attributes:
        undeployed: Its name.
    """

    undeployed: str


class VersionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A version of the definition.

    Attributes:
        version: Its number.
    """

    version: Version


class Retired(msgspec.Struct):
    """A version, and whether starts by name may choose it.

    Attributes:
        name: The name of the definition.
        version: The version.
        retired: Whether starts by name choose another version.
    """

    name: str
    version: int
    retired: bool


class DeployQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The options of a deploy.

    Attributes:
        ignore_extensions: Whether to deploy a process although it has extensions that Hark does not run.
    """

    ignore_extensions: bool = False


async def deploy(request: HttpRequest) -> Response:
    """Deploy the body, by its content type: a job in YAML or JSON, or BPMN in XML."""
    query: DeployQuery = request.query()
    kind = (request.header_text(b"content-type") or "application/json").partition(";")[0].strip().lower()
    form = kind.rpartition("/")[2]
    if form not in (*_JOB_FORMS, *_BPMN_FORMS):
        raise _invalid(
            f"A definition cannot be sent as {kind!r}. Send BPMN as application/xml, a job as application/yaml or "
            "application/json."
        )
    length = request.header(b"content-length")
    if form in _BPMN_FORMS:
        # The file is not a payload: a drawing with 1,000 elements has more bytes than a payload may have.
        raw = await parsing.read_body(request.receive, length, max(request.access.max_payload, _MAX_BPMN))
        if not is_xml(raw):
            raise _invalid("The body is not XML. Send a job with the content type application/yaml.")
    else:
        raw = await parsing.read_body(request.receive, length, request.access.max_payload, parsing.ENVELOPE)
        if is_xml(raw):
            raise _invalid("The body is XML, not a job. Send BPMN with the content type application/xml.")
    # In a thread: reading a large file would keep the event loop from other requests.
    reply = await asyncio.to_thread(request.app.deploy, raw, ignore_extensions=query.ignore_extensions)
    return json_response(Deployed([Deployment(name, version) for name, version in await reply]), 201)


def _invalid(message: str) -> InvalidDefinition:
    return InvalidDefinition(message, problems=[Problem(None, None, message)])


async def definitions(request: HttpRequest) -> Response:
    query: DefinitionsQuery = request.query()
    if query.all_versions:
        return page_response(await request.app.definitions(name=query.name, limit=query.limit, after=query.after))
    return page_response(await request.access.startable(name=query.name, limit=query.limit, after=query.after))


async def undeploy(request: HttpRequest) -> Response:
    [name] = request.args
    await request.app.undeploy(name)
    return json_response(Undeployed(name))


async def retire(request: HttpRequest) -> Response:
    return await _retired(request, retired=True)


async def unretire(request: HttpRequest) -> Response:
    return await _retired(request, retired=False)


async def _retired(request: HttpRequest, *, retired: bool) -> Response:
    [name] = request.args
    body = await request.body_as(VersionBody, parsing.ENVELOPE)
    verb = request.app.retire if retired else request.app.unretire
    await verb(name, body.version)
    return json_response(Retired(name, body.version, retired))


async def definition_diagram(request: HttpRequest) -> Response:
    [name] = request.args
    return await _drawn(request.access.definition_drawing(name))


async def instance_diagram(request: HttpRequest) -> Response:
    [target] = request.args
    return await _drawn(request.access.instance_drawing(target))


async def _drawn(drawing: Awaitable[Callable[[], str]]) -> Response:
    """Draw in a thread: a large diagram would keep the event loop from other requests."""
    return text_response(await asyncio.to_thread(await drawing), _SVG, [_POLICY])


tasks = answer_with(lambda request, target: request.access.job_report(target))


async def set_variables(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.set_variables(target, await request.json_body()))
