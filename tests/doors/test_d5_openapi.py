"""D5: the OpenAPI document is generated from the table of routes, and a fuzzer finds only documented responses."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth, missing_required_header, positive_data_acceptance

from hark.doors.http.api import ROUTES
from hark.doors.http.openapi import document as describe
from hark.doors.http.read_routes import VERSION
from hark.model.values import AwakeableStatus, Kind, Status, WaitKind
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
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """No request waits long for the end of an instance."""
    if query and isinstance(query.get("wait"), int | float) and 1 < query["wait"] <= 60:
        query["wait"] /= 600
    return query


@SCHEMA.hook
def map_body(context: Any, body: Any) -> Any:
    """A third of the starts use a definition that exists."""
    name = body.get("definition") if isinstance(body, dict) else None
    if isinstance(name, str) and 0 < len(name) < 256 and len(name) % 3 == 0:
        body["definition"] = "Order"
    return body


@pytest.mark.slow
@SCHEMA.exclude(path_regex="/(stream|fetch)$").parametrize()  # these wait
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


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for item in document["paths"].values() for operation in item.values()]


def test_d5_every_operation_is_named_grouped_and_described(document: dict[str, Any]) -> None:
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    used = set()
    for operation in operations(document):
        assert re.fullmatch("[a-z]+([A-Z][a-z]+)+", operation["operationId"])
        assert operation["summary"].endswith(".")
        assert operation["description"]
        [tag] = operation["tags"]
        assert tags[tag]
        used.add(tag)
    assert used == set(tags)
    assert document["info"]["description"]


def test_d5_every_operation_names_the_scope_that_a_token_needs(document: dict[str, Any]) -> None:
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["security"] == ([] if route.scope is None else [{"token": [route.scope]}, {}])
    assert document["components"]["securitySchemes"]["token"]["description"]


def test_d5_every_parameter_body_and_response_has_a_description_and_an_example(document: dict[str, Any]) -> None:
    for operation in operations(document):
        about = operation["operationId"]
        for parameter in operation["parameters"]:
            assert parameter["description"], (about, parameter["name"])
            validate(document, parameter["schema"], parameter["example"])
        for body in [
            *([operation["requestBody"]] if "requestBody" in operation else []),
            *operation["responses"].values(),
        ]:
            assert body["description"], about
            for media in body.get("content", {}).values():
                if "example" in media:
                    validate(document, media["schema"], media["example"])
                else:
                    schema = media["schema"].get("items", media["schema"])
                    assert all("$ref" in one for one in schema.get("oneOf", [schema])), about


def test_d5_every_schema_and_property_has_a_description_and_every_schema_an_example(document: dict[str, Any]) -> None:
    inputs = {body.__name__ for route in ROUTES for body in route.bodies}
    for name, schema in document["components"]["schemas"].items():
        assert schema["description"], name
        for example in schema["examples"]:
            validate(document, {"$ref": f"#/components/schemas/{name}"}, example)
        for property, described in schema.get("properties", {}).items():
            assert described["description"], (name, property)
        if "properties" in schema and name != "Error" and name not in inputs:
            absent = {"previous", "headers"} if name == "FetchedTask" else set()  # of a loop, and of a process
            assert {*schema["examples"][0]} == {*schema["properties"]} == {*schema["required"]} | absent, name
            assert absent.isdisjoint(schema["required"])


def validate(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema_rs.validate({**schema, "components": document["components"]}, value)


def test_d5_statuses_and_kinds_are_enums(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, words in {
        "Status": Status,
        "Kind": Kind,
        "AwakeableStatus": AwakeableStatus,
        "WaitKind": WaitKind,
    }.items():
        assert schemas[name]["enum"] == [*get_args(words)]
    for owner, property, name in (
        ("Instance", "status", "Status"), ("Awakeable", "status", "AwakeableStatus"), ("Wait", "kind", "WaitKind"),
    ):  # fmt: skip
        assert schemas[owner]["properties"][property]["$ref"] == f"#/components/schemas/{name}"


@pytest.mark.parametrize(
    ("method", "path", "body", "property"),
    [
        ("post", "/instances", {"definition": ""}, "definition"),
        ("post", "/instances", {"definition": "Order", "correlation_key": ""}, "correlation_key"),
        ("post", "/instances", {"definition": "Order", "id": ""}, "id"),
        ("post", "/signal", {"SignalName": ""}, "SignalName"),
        ("post", "/signal", {"signalName": ""}, "signalName"),
        ("post", "/message", {"MessageName": "m", "CorrelationKey": ""}, "CorrelationKey"),
        ("post", "/message", {"messageName": "m", "correlationKey": ""}, "correlationKey"),
    ],
)
def test_d5_an_empty_name_is_refused_by_the_document_as_by_the_server(
    document: dict[str, Any], url: str, method: str, path: str, body: Any, property: str
) -> None:
    schema = document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    with pytest.raises(jsonschema_rs.ValidationError):
        validate(document, schema, body)
    assert httpx.request(method, url + path, json=body, timeout=60).status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/signal", {"SignalName": "x", "Payload": 1}, 200),
        ("/signal", {"signalName": "x", "payload": 1}, 200),
        ("/signal", {"signalName": "x", "Payload": 1}, 422),
        ("/signal", {"SignalName": "x", "signalName": "x"}, 422),
        ("/signal", {"payload": 1}, 422),
        ("/message", {"MessageName": "m", "CorrelationKey": "k", "Variables": {}, "ttl": 1}, 200),
        ("/message", {"messageName": "m", "correlationKey": "k", "variables": {}, "ttl": 1}, 200),
        ("/message", {"messageName": "m", "CorrelationKey": "k", "ttl": 1}, 422),
        ("/message", {"messageName": "m", "ttl": 1}, 422),
    ],
)
def test_d5_both_spellings_of_a_body_are_in_the_document_as_in_the_server(
    document: dict[str, Any], url: str, path: str, body: Any, status: int
) -> None:
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    if status == 200:
        validate(document, schema, body)
    else:
        with pytest.raises(jsonschema_rs.ValidationError):
            validate(document, schema, body)
    assert httpx.post(url + path, json=body, timeout=60).status_code == status


def test_d5_the_document_of_a_server_is_about_the_root(document: dict[str, Any]) -> None:
    assert [server["url"] for server in document["servers"]] == ["/"]


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
