"""One NATS server for the tests that do not break it; each has a bucket of its own."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that the test may break."""
    with NatsServer(tmp_path) as server:
        yield server


@pytest.fixture
def bucket() -> str:
    return f"signals_{secrets.token_hex(4)}"
