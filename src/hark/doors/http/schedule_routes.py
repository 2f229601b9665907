"""The routes of schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from hark.doors.http import parsing
from hark.doors.http.pages import PageQuery, page_of, page_response
from hark.doors.http.parsing import Name
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest, Route, answer_with
from hark.model.trigger import MAX_CATCH_UP
from hark.model.values import Instance, Schedule

# The limits are for /openapi.json only, as those of a name are.
Interval = Annotated[float, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0})]
CatchUp = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_CATCH_UP})]


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A schedule: the definition that it starts, and its times, as either `cron` or `every`.

    Attributes:
        definition: The name of the definition.
        input: The input of each instance.
        cron: A cron expression of five fields, or six with seconds first.
        every: The interval in seconds.
        timezone: The time zone that `cron` is read in, by its IANA name.
        overlap: What happens at a tick while the instance of an earlier one is not finished.
        catch_up: How many of the ticks that were missed are started later.
        correlation_key: The correlation key of each instance.
    """

    definition: Name
    input: Any = None
    cron: str | None = None
    every: Interval | None = None
    timezone: str = "UTC"
    overlap: Literal["skip", "allow", "queue"] = "skip"
    catch_up: CatchUp = 1
    correlation_key: Name | None = None


class SchedulesQuery(PageQuery):
    """A page of schedules."""


SchedulePage = page_of(Schedule, "SchedulePage", "schedules", "by name")


class Unscheduled(msgspec.Struct):
    """The schedule is deleted.

    Attributes:
        deleted: The name of the schedule.
    """

    deleted: str


async def schedules(request: HttpRequest) -> Response:
    query: SchedulesQuery = request.query()
    return page_response(await request.app.schedules(limit=query.limit, after=query.after))


async def put(request: HttpRequest) -> Response:
    [name] = request.args
    body = await request.body_as(ScheduleBody, parsing.ENVELOPE)
    options = msgspec.structs.asdict(body)
    made = await request.app.schedule(name, options.pop("definition"), options.pop("input"), **options)
    return json_response(made)


schedule = answer_with(lambda request, name: request.access.schedule(name))
pause = answer_with(lambda request, name: request.app.pause_schedule(name))
resume = answer_with(lambda request, name: request.app.resume_schedule(name))


async def delete(request: HttpRequest) -> Response:
    [name] = request.args
    await request.app.unschedule(name)
    return json_response(Unscheduled(name))


async def trigger(request: HttpRequest) -> Response:
    [name] = request.args
    handle = await request.app.trigger_schedule(name)
    instance: Instance = await handle.get()
    return json_response(instance, 201, [(b"location", f"{request.origin}/instances/{instance.id}".encode("latin-1"))])


ROUTES: list[Route] = [
    Route("GET", "/schedules", schedules, "read", "List schedules, by name.", {200: SchedulePage},
          query=SchedulesQuery,
          id="listSchedules", tag="Schedules"),
    Route("GET", "/schedules/{name}", schedule, "read", "Read one schedule.", {200: Schedule}, (404,),
          id="getSchedule", tag="Schedules"),
    Route("PUT", "/schedules/{name}", put, "operate", "Create a schedule, or replace the one of this name.",
          {200: Schedule}, (400, 404, 413), body=ScheduleBody,
          id="putSchedule", tag="Schedules"),
    Route("DELETE", "/schedules/{name}", delete, "operate",
          "Delete a schedule; the instances that it has started continue.", {200: Unscheduled}, (404,),
          id="deleteSchedule", tag="Schedules"),
    Route("POST", "/schedules/{name}/pause", pause, "operate", "Pause a schedule: it starts nothing until it resumes.",
          {200: Schedule}, (404,),
          id="pauseSchedule", tag="Schedules"),
    Route("POST", "/schedules/{name}/resume", resume, "operate", "Resume a schedule, from its next tick on.",
          {200: Schedule}, (404,),
          id="resumeSchedule", tag="Schedules"),
    Route("POST", "/schedules/{name}/trigger", trigger, "operate", "Start an instance of a schedule now.",
          {201: Instance}, (404, 409),
          id="triggerSchedule", tag="Schedules"),
]  # fmt: skip
