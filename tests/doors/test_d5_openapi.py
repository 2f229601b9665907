"""D5: the OpenAPI document is generated from the table of routes, and a fuzzer finds only documented responses."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth, missing_required_header, positive_data_acceptance

from hark.doors.http.api import ROUTES
from hark.doors.http.openapi import document as describe
from hark.doors.http.read_routes import VERSION
from tests.support.http import app_on, ask
from tests.support.stores import Store

# What the document cannot express: names are limited in bytes, cursors come from earlier pages, keys do not repeat.
# Requests from this machine need no credential, which `security: [{}]` says.
NOT_APPLICABLE = [positive_data_acceptance, ignored_auth, missing_required_header]


@contextmanager
def served(store: Store) -> Iterator[str]:
    """A server in a thread, with instances and awakeables."""
    ready = threading.Event()
    about: dict[str, Any] = {}

    async def run() -> None:
        app = app_on(store)
        async with app:
            for name in ("fuzz-1", "fuzz-2", "a/b"):
                await app.start("Order", correlation_key=name)
            about["loop"], about["stop"] = asyncio.get_running_loop(), asyncio.Event()
            await ask(store, *(f"prom_{n}" for n in range(20)))

            def say(line: str) -> None:
                about["url"] = line.split()[2].rstrip(";")
                ready.set()

            serving = asyncio.ensure_future(app.serve(port=0, say=say))
            await about["stop"].wait()
            serving.cancel()
            await asyncio.wait({serving})

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(30)
    try:
        yield about["url"]
    finally:
        about["loop"].call_soon_threadsafe(about["stop"].set)
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(Store("sqlite", f"sqlite:///{tmp_path_factory.mktemp('fuzz') / 'hark.db'}")) as url:
        yield url


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json", timeout=60).json()
    return found


SCHEMA = schemathesis.openapi.from_dict(describe(ROUTES, VERSION))


@SCHEMA.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the requests use an id that exists."""
    known = {"target": ["fuzz-1", "fuzz-2", "a/b"], "id": [f"prom_{n}" for n in range(20)]}
    for name, values in known.items():
        if path_parameters and isinstance(path_parameters.get(name), str):
            number = sum(map(ord, path_parameters[name]))
            if number % 2:
                path_parameters[name] = values[number // 2 % len(values)]
    return path_parameters


@SCHEMA.hook
def map_body(context: Any, body: Any) -> Any:
    """A third of the starts use a definition that exists."""
    if isinstance(body, dict) and isinstance(body.get("definition"), str) and len(body["definition"]) % 3 == 0:
        body["definition"] = "Order"
    return body


@pytest.mark.slow
@SCHEMA.exclude(path_regex="/stream$").parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_d5_a_fuzzer_finds_only_documented_responses(case: Any, url: str) -> None:
    case.call_and_validate(base_url=url, excluded_checks=NOT_APPLICABLE, timeout=20)


def test_d5_every_route_is_described_and_nothing_else(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_d5_operation_ids_are_unique_and_scopes_are_named(document: dict[str, Any]) -> None:
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert document["paths"]["/instances"]["post"]["description"] == "A token needs the scope `operate`."
    assert {"202", "400", "401", "403", "404", "413", "422", "503"} == set(
        document["paths"]["/instances/{target}/signals/{name}"]["post"]["responses"]
    )


def test_d5_every_reference_resolves(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(document))
    assert found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
