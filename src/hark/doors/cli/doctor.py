"""`hark doctor`: what is well, what is worth a look, what is wrong, and what to do about it."""

import os
import platform
import sys
from typing import Any

import typer

from hark.doors.cli.options import Options, command, door_access, open_engine
from hark.doors.cli.output import colored, duration, print_json, printable, when
from hark.model.errors import HarkError

Found = tuple[str, str, str]  # what was looked at, ok | look | wrong, what was found and what to do
_SKEW = 2.0


def add_commands(cli: typer.Typer) -> None:
    command(cli)(doctor)


def doctor(options: Options) -> None:
    """Check Python, the store, its workers, timers and waits; exit 1 when something is wrong.

    hark doctor --db postgresql://localhost/shop
    """
    found = [_python()]
    try:
        with open_engine(options) as hark:
            if options.remote is not None:
                hark.list(limit=1).result()
                found.append(("server", "ok", f"{options.remote} answers"))
            else:
                facts = door_access(hark).health().result()
                found += [*diagnose(facts), _secret(os.environ.get("HARK_SECRET"))]
    except HarkError as error:
        found.append(("store", "wrong", str(error)))
    if options.json:
        print_json([{"check": what, "status": status, "text": text} for what, status, text in found])
    else:
        for what, status, text in found:
            print(f"{colored(f'{status:<6}', _STYLE[status])} {what:<12} {printable(text)}")
    if any(status == "wrong" for _, status, _ in found):
        raise typer.Exit(1)


_STYLE = {"ok": "green", "look": "yellow", "wrong": "red"}


def _python() -> Found:
    return "python", "ok", f"{platform.python_version()} on {platform.system()} ({sys.executable})"


def _secret(given: str | None) -> Found:
    if not given:
        return "secret", "ok", "links are signed with the app's own secret, or the one the store made"
    if min(map(len, given.split(","))) < 16:
        return "secret", "wrong", "HARK_SECRET is short enough to be guessed: make one with `openssl rand -hex 32`"
    return "secret", "ok", "links are signed with HARK_SECRET"


def diagnose(facts: dict[str, Any]) -> list[Found]:
    """The facts of a store, judged."""
    return [
        _database(facts), _schema(facts), _clock(facts), _workers(facts), _code(facts), _leases(facts),
        _timers(facts), _waits(facts),
    ]  # fmt: skip


def _database(facts: dict[str, Any]) -> Found:
    if facts["database_problem"] is not None:
        return "store", "wrong", facts["database_problem"]
    return "store", "ok", f"{facts['database']} answers"


def _schema(facts: dict[str, Any]) -> Found:
    return "migrations", "ok", f"up to date, version {facts['schema']}"


def _clock(facts: dict[str, Any]) -> Found:
    skew = facts["skew"]
    if abs(skew) > _SKEW:
        text = f"this machine and the database differ by {skew:+.1f} s; timers follow the database: set this clock"
        return "clock", "look", text
    return "clock", "ok", f"differs from the database's by {abs(skew) * 1000:.0f} ms"


def _workers(facts: dict[str, Any]) -> Found:
    alive, living = facts["workers"], facts["living"]
    if alive:
        return "workers", "ok", f"{alive} alive, for {living} living instances"
    if living:
        text = f"none is alive, and {living} instances are: start one with `hark worker --app module:app`"
        return "workers", "wrong", text
    return "workers", "look", "none is alive; nothing needs one yet"


def _code(facts: dict[str, Any]) -> Found:
    codeless = facts["codeless"]
    if not codeless:
        return "code", "ok", "every living instance has a worker with its code"
    listed = ", ".join(f"{one['definition']} version {one['version']} ({one['instances']})" for one in codeless[:10])
    text = f"no worker that is alive has the code of {listed}: start one that registers it, or cancel those instances"
    return "code", "wrong", text


def _leases(facts: dict[str, Any]) -> Found:
    abandoned = facts["abandoned"]
    if not abandoned:
        return "leases", "ok", "no step is left behind by a dead worker"
    text = f"{abandoned} steps were left behind by dead workers; "
    if facts["workers"]:
        return "leases", "look", text + "the living take them over within a lease"
    return "leases", "wrong", text + "start a worker, or take them back with `hark timeout check`"


def _timers(facts: dict[str, Any]) -> Found:
    if not facts["late"]:
        return "timers", "ok", "nothing is late"
    text = f"{facts['late']} are late, the first since {when(facts['late_since'])}"
    return "timers", "wrong", text + ": start a worker, or fire them with `hark timeout check`"


def _waits(facts: dict[str, Any]) -> Found:
    from datetime import UTC, datetime

    oldest = facts["oldest_wait"]
    if oldest is None:
        return "waits", "ok", "nobody waits"
    age = duration((datetime.now(UTC) - oldest["since"]).total_seconds())
    name = f" {oldest['name']!r}" if oldest["name"] else ""
    return (
        "waits",
        "ok",
        f"the oldest is {age}: {oldest['kind']}{name}; see `hark instance why {oldest['instance_id']}`",
    )
