"""The verbs of schedules: start instances of a definition at given times."""

from __future__ import annotations

from typing import Any, Literal

from hark.app.arguments import check_limit, optional_name
from hark.app.core import Core
from hark.app.handle import Handle
from hark.app.new_instances import Definition
from hark.engine.turns.reply import Reply
from hark.kernel.requests import ChangeSchedule
from hark.model.names import check_name
from hark.model.outcomes import Duration
from hark.model.page import Page
from hark.model.trigger import new_schedule
from hark.model.values import Schedule
from hark.views import schedule_views


class ScheduleVerbs(Core):
    """schedule, schedules, pause_schedule, resume_schedule, trigger_schedule, unschedule."""

    def schedule(
        self,
        name: str,
        definition: Definition,
        input: Any = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        overlap: Literal["skip", "allow", "queue"] = "skip",
        catch_up: int = 1,
        correlation_key: str | None = None,
    ) -> Reply[Schedule]:
        """Create a schedule, or replace the one of this name. Each of its ticks starts one instance.

        A program may do this whenever it starts: a schedule that is replaced stays paused if it was, and with the same
        `cron`, `every` and `timezone` it keeps its next tick.

        Args:
            name: The name of the schedule.
            definition: What to start: a `@workflow`, a `Machine` class, or the name of a definition. A tick starts the
                newest version that is known at that time.
            input: What each instance starts with, as in `start`.
            cron: A cron expression of five fields (minute, hour, day, month, weekday), or six with seconds first.
            every: The interval, in seconds or as a `timedelta`, instead of `cron`. The first tick is one interval from
                now.
            timezone: The IANA name of the time zone of `cron`. A local time that occurs twice starts once; one that is
                skipped starts at the first instant after the gap.
            overlap: What happens at a tick while the instance of an earlier one is not finished: "skip" starts nothing,
                "allow" starts another one, "queue" starts it when the other has finished (at most one tick waits).
            catch_up: How many of the ticks that were missed, because no worker was running, are started later: the
                latest ones. The others are counted in `Schedule.missed`.
            correlation_key: The correlation key of every instance. While one holds it, a tick starts nothing.

        Returns:
            A reply with the `Schedule`.

        Raises:
            InvalidInput: An argument is malformed: the expression, the interval, the time zone, or the input.
            NotFound: No worker has ever registered the definition.

        Example:
            await app.schedule("report", report, {"to": "ann"}, cron="0 9 * * MON", timezone="Europe/Berlin")
        """
        item = self._starts.build(definition, input, {"correlation_key": correlation_key})
        start = new_schedule(
            check_name(name, "schedule name"), item.state, cron=cron, every=every, timezone=timezone, overlap=overlap,
            catch_up=catch_up, correlation_key=item.correlation_key,
        )  # fmt: skip
        request = ChangeSchedule(verb="put", name=start.name, definition=item.definition, start=start)
        return self._ask(request, schedule_views.schedule)

    def schedules(self, *, limit: int = 10_000, after: str | None = None) -> Reply[Page[Schedule]]:
        """List schedules, by name.

        Args:
            limit: How many at most, up to 10,000.
            after: The `.next` of the page before, which is the name of its last schedule.

        Returns:
            A reply with a `Page` of `Schedule`s.

        Example:
            for schedule in await app.schedules():
                print(schedule.name, schedule.next_at)
        """
        size = check_limit(limit)
        optional_name(after, "after")
        return self._read(lambda store: schedule_views.page(store, size, after))

    def pause_schedule(self, name: str) -> Reply[Schedule]:
        """Pause a schedule: it starts nothing until `resume_schedule`. To pause it again changes nothing.

        Instances that it has started continue; a tick that waits for one of them is dropped.

        Args:
            name: The name of the schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        return self._ask(ChangeSchedule(verb="pause", name=_name(name)), schedule_views.schedule)

    def resume_schedule(self, name: str) -> Reply[Schedule]:
        """Resume a schedule, from its next tick on. The ticks during the pause are not started, nor counted as missed.

        Args:
            name: The name of the schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        return self._ask(ChangeSchedule(verb="resume", name=_name(name)), schedule_views.schedule)

    def trigger_schedule(self, name: str) -> Reply[Handle[Any]]:
        """Start an instance of a schedule now, whatever its `overlap` is, also while it is paused.

        Its ticks stay as they are. `ctx.scheduled_at` of the instance is the present time.

        Args:
            name: The name of the schedule.

        Returns:
            A reply with the `Handle` of the instance.

        Raises:
            NotFound: There is no such schedule, or its definition was removed.
            Duplicate: An instance has the correlation key of the schedule; `.holder` is its id.
        """
        return self._ask(ChangeSchedule(verb="trigger", name=_name(name)), self._handle)

    def unschedule(self, name: str) -> Reply[None]:
        """Delete a schedule. Instances that it has started continue.

        Args:
            name: The name of the schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        return self._ask(ChangeSchedule(verb="delete", name=_name(name)))


def _name(name: str) -> str:
    return check_name(name, "schedule name")
