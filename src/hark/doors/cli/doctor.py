"""`hark doctor`: check a store, and say what to do about each problem."""

import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from hark.doors.cli.engine import open_engine, use_nats
from hark.doors.cli.options import NatsUrl, Options
from hark.doors.cli.output import colored, print_json, printable, when
from hark.model.durations import duration
from hark.model.errors import HarkError
from hark.model.masking import masked

if TYPE_CHECKING:
    from hark.app import Hark
    from hark.model.nats import NatsReport

_MAX_SKEW = 2.0  # seconds
_MIN_SECRET = 16  # characters
_LISTED = 10  # definitions


class Check(NamedTuple):
    """The result of one check: what was found and, for a warning or an error, what to do."""

    name: str
    status: Literal["ok", "warning", "error"]
    text: str


def doctor(options: Options, nats: NatsUrl = None) -> None:
    """Check a store, its workers, its timers and its schedules, and NATS if the app uses it.

    Exits with 1 when a check finds an error.

    hark doctor --db postgresql://localhost/shop
    """
    from hark.app import Hark
    from hark.app.door_access import DoorAccess

    checks = [Check("python", "ok", f"{platform.python_version()} on {platform.system()} ({sys.executable})")]
    try:
        with open_engine(options, "read") as hark:
            if isinstance(hark, Hark):
                checks += diagnose(DoorAccess(hark).health().result())
                checks += _check_server(hark, nats)
                checks.append(_check_secret(os.environ.get("HARK_SECRET")))
            else:
                hark.list(limit=1).result()
                checks.append(Check("server", "ok", f"{masked(options.remote)} responds"))
    except HarkError as error:
        checks.append(Check("store", "error", str(error)))
    if options.json:
        print_json([{"check": name, "status": status, "text": text} for name, status, text in checks])
    else:
        for name, status, text in checks:
            print(f"{colored(status)}{'':<{8 - len(status)}}{name:<12} {printable(options.add_to_commands(text))}")
    if any(check.status == "error" for check in checks):
        raise typer.Exit(1)


def diagnose(facts: dict[str, Any]) -> list[Check]:
    """Turn the facts about a store (views/health.py) into checks."""
    schema = Check("migrations", "ok", f"up to date, version {facts['schema']}")
    return [
        _check_database(facts), schema, _check_clock(facts), _check_workers(facts), _check_code(facts),
        _check_held(facts), _check_failed(facts), _check_versions(facts), _check_leases(facts), _check_timers(facts),
        _check_schedules(facts), _check_waits(facts),
    ]  # fmt: skip


def _check_secret(secret: str | None) -> Check:
    if not secret:
        return Check("secret", "ok", "links are signed with the secret of the app, or with the one in the store")
    if min(map(len, secret.split(","))) < _MIN_SECRET:
        text = "HARK_SECRET is so short that it can be guessed; make a new one with `openssl rand -hex 32`"
        return Check("secret", "error", text)
    return Check("secret", "ok", "links are signed with HARK_SECRET")


def _check_database(facts: dict[str, Any]) -> Check:
    if facts["database_problem"] is not None:
        return Check("store", "error", facts["database_problem"])
    return Check("store", "ok", f"{facts['database']} responds")


def _check_clock(facts: dict[str, Any]) -> Check:
    skew = facts["skew"]
    if abs(skew) <= _MAX_SKEW:
        return Check("clock", "ok", f"{abs(skew) * 1000:.0f} ms off the clock of the database")
    text = f"this clock is {skew:+.1f} s off the clock of the database, which timers use; correct this clock"
    return Check("clock", "warning", text)


def _check_workers(facts: dict[str, Any]) -> Check:
    workers, live = facts["workers"], _count(facts["living"], "live instance")
    if facts["schedules"]:
        live = f"{live} and {_count(facts['schedules'], 'schedule')}"
    if silent := facts["silent_workers"]:
        text = (
            f"{silent} of {_count(workers, 'worker')} not heard of for {duration(facts['heard_of'])}; if dead, other "
            f"workers take over in {duration(facts['silent_until'])}"
        )
        return Check("workers", "warning", text)
    if workers:
        heard = "" if facts["heard_of"] is None else f", last heard of {duration(facts['heard_of'])} ago"
        return Check("workers", "ok", f"{_count(workers, 'worker')} for {live}{heard}")
    if facts["living"] or facts["schedules"]:
        start = _starts(facts["codeless"]) or "`hark worker --app module:app`"
        return Check("workers", "error", f"no worker for {live}; start one with {start}")
    return Check("workers", "warning", "no worker; none is needed yet, because there are no live instances")


def _check_code(facts: dict[str, Any]) -> Check:
    missing = facts["codeless"]
    if not missing:
        return Check("code", "ok", "every live instance has a worker with its code")
    listed = ", ".join(f"{one['missing']} ({_count(one['instances'], 'instance')})" for one in missing[:_LISTED])
    text = f"no worker has {listed}; start one that has it ({_starts(missing[:_LISTED])}), or cancel the instances"
    return Check("code", "error", text)


def _starts(missing: Sequence[dict[str, Any]]) -> str:
    """The commands that start a worker. Any worker does what a plain `hark worker` does."""
    commands = dict.fromkeys(one["start"] for one in missing)
    needed = [command for command in commands if command != "hark worker"] or commands
    return " or ".join(f"`{command}`" for command in needed)


def _check_held(facts: dict[str, Any]) -> Check:
    held = facts["held"]
    if not held:
        return Check("held", "ok", "no instance is held")
    groups = [
        f"{_count(one['instances'], 'instance')} with {one['what']}: {one['cause'].rstrip('.')}"
        for one in held[:_LISTED]
    ]
    text = "`hark instance list --status held` lists them; they go on when a worker has code that fits"
    return Check("held", "error", f"{'; '.join(groups)}; {text}")


def _check_failed(facts: dict[str, Any]) -> Check:
    if not facts["failed"]:
        return Check("failed", "ok", "no failed instance is kept")
    text = "`hark instance list --status failed` lists them; they are kept for 90 days, or Hark(retention_failed=…)"
    count = f"{_count(facts['failed'], 'failed instance')}{' or more' if facts['failed'] >= 1000 else ''}"
    return Check("failed", "warning", f"{count}, the first failed {when(facts['failed_since'])}; {text}")


def _check_versions(facts: dict[str, Any]) -> Check:
    if not facts["two_codes"]:
        return Check("versions", "ok", "every version has one code")
    listed = "; ".join(facts["two_codes"][:_LISTED])
    text = f"{listed}. `hark check --app module:app` says what continues; a new version= keeps both codes apart"
    return Check("versions", "warning", text)


def _check_leases(facts: dict[str, Any]) -> Check:
    if not facts["abandoned"]:
        return Check("leases", "ok", "no steps of dead workers")
    text = f"{_count(facts['abandoned'], 'step')} of dead workers"
    if facts["workers"]:
        return Check("leases", "warning", f"{text}; the other workers reclaim them when the lease ends")
    return Check("leases", "error", f"{text}; start a worker, or reclaim them with `hark timeout check`")


def _check_timers(facts: dict[str, Any]) -> Check:
    if not facts["late"]:
        return Check("timers", "ok", "no timer is late")
    text = f"{_count(facts['late'], 'timer')} late, the first was due {when(facts['late_since'])}"
    return Check("timers", "error", f"{text}; start a worker, or fire them with `hark timeout check`")


def _check_schedules(facts: dict[str, Any]) -> Check:
    if not facts["schedules"]:
        return Check("schedules", "ok", "no schedule, or all are paused")
    if late := facts["late_schedules"]:
        text = f"{_count(late, 'schedule')} late, the first was due {when(facts['next_tick'])}"
        return Check("schedules", "error", f"{text}; start a worker, or fire them with `hark timeout check`")
    if missing := facts["codeless_schedules"]:
        listed = ", ".join(f"{one['missing']} ({_count(one['schedules'], 'schedule')})" for one in missing[:_LISTED])
        text = f"no worker has {listed}; start one that registers it, or delete the schedules"
        return Check("schedules", "warning", text)
    if refused := facts["refused_schedules"]:
        text = f"the last tick of {_count(refused, 'schedule')} started nothing; `hark schedule list` says why"
        return Check("schedules", "warning", text)
    return Check(
        "schedules", "ok", f"{_count(facts['schedules'], 'schedule')}, the next is due {when(facts['next_tick'])}"
    )


def _check_waits(facts: dict[str, Any]) -> Check:
    oldest = facts["oldest_wait"]
    if oldest is None:
        return Check("waits", "ok", "no instance waits")
    age = duration((datetime.now(UTC) - oldest["since"]).total_seconds())
    name = f" {oldest['name']!r}" if oldest["name"] else ""
    text = f"the oldest wait is {age} old: {oldest['kind']}{name}; see `hark instance why {oldest['instance_id']}`"
    return Check("waits", "ok", text)


def _check_server(hark: "Hark", url: str | None) -> list[Check]:
    """The check of NATS; none if the app does not use it."""
    from hark.app.door_access import DoorAccess

    try:
        use_nats(hark, url)
    except HarkError as error:
        return [Check("nats", "error", str(error))]
    report = DoorAccess(hark).nats_report().result()
    return [] if report is None else [_check_nats(report)]


def _check_nats(report: "NatsReport") -> Check:
    where = f"NATS {report.server_version} at {report.address}".replace("  ", " ")
    reader = report.reader or "a process"
    last = _last_error(report)
    unread = f"{_count(report.unread, 'unread signal')} in the bucket {report.bucket!r}"
    if report.problem is not None:
        from hark.model.nats import WITHOUT_NATS  # it loads ssl

        return Check("nats", "error", f"{report.address}: {report.problem}. {WITHOUT_NATS}")
    if report.settings:
        text = f"{where}: the bucket {report.bucket!r} {' and '.join(report.settings)}; a worker corrects this"
        return Check("nats", "error", text)
    if not report.is_read:
        text = f"{where}, {unread}, and no process reads it; start a worker with the option nats, or with `--nats`"
        return Check("nats", "error" if report.unread else "warning", text)
    if report.is_silent:
        text = f"{where}, {unread}; the process that reads it does not answer. Another one takes over in a few seconds"
        return Check("nats", "error", f"{text}; if that one is the only one, start it again")
    if report.is_stuck:
        return Check("nats", "error", f"{where}, {unread}, which {reader} cannot commit{last}")
    return Check("nats", "ok", f"{where}, {unread}, read by {reader}{last}")


def _last_error(report: "NatsReport") -> str:
    if report.last_error is None:
        return ""
    age = "" if report.error_age is None else f", {duration(report.error_age)} ago"
    return f"; its last error{age}: {report.last_error}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
