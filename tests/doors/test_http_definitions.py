"""The routes of definitions: deploy, list, undeploy, draw; and the tasks of a job."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from hark import Hark
from tests.doors.test_http_instances import reached
from tests.support.bpmn_files import ORDER
from tests.support.http import app_on, serving
from tests.support.stores import Store

JOB = "name: release\ntasks:\n  - {name: ok, type: approval, title: 'Release?'}\n"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
async def http(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app_on(store)) as client:
        yield client


async def deploy(http: httpx.AsyncClient, text: str) -> Any:
    answer = await http.post("/definitions", content=text, headers=YAML)
    assert answer.status_code == 201, answer.text
    return answer.json()["deployed"]


@pytest.mark.parametrize("form", ["application/yaml", "application/xml"])
async def test_a_file_is_read_beside_the_event_loop(
    http: httpx.AsyncClient, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file takes seconds to read: other requests do not wait for it."""
    readers: list[threading.Thread] = []

    def noting(self: Hark, *arguments: Any, **options: Any) -> Any:
        readers.append(threading.current_thread())
        return deploy_here(self, *arguments, **options)

    deploy_here = Hark.deploy
    monkeypatch.setattr(Hark, "deploy", noting)
    text = JOB if form == "application/yaml" else ORDER
    answer = await http.post("/definitions", content=text, headers={"Content-Type": form})
    assert (answer.status_code, len(readers)) == (201, 1)
    assert readers != [threading.current_thread()]
    refused = {JOB: "application/xml", ORDER: "application/yaml"}
    answer = await http.post("/definitions", content=text, headers={"Content-Type": refused[text]})
    assert (answer.status_code, answer.json()["type"], len(readers)) == (400, "InvalidDefinition", 1)


async def test_a_job_is_deployed_started_drawn_answered_and_undeployed(http: httpx.AsyncClient) -> None:
    assert await deploy(http, JOB) == [{"name": "release", "version": 1}]
    assert await deploy(http, JOB) == [{"name": "release", "version": 1}]  # the same text is no new version
    assert await deploy(http, JOB.replace("Release?", "Really?")) == [{"name": "release", "version": 2}]
    as_json = {"name": "release", "tasks": [{"name": "ok", "type": "approval", "title": "Yes?"}]}
    again = await http.post("/definitions", json=as_json)
    assert (again.status_code, again.json()) == (201, {"deployed": [{"name": "release", "version": 3}]})
    listed = (await http.get("/definitions")).json()
    one, after = [], ""
    while after is not None:
        page = (await http.get("/definitions", params={"limit": 1, **({"after": after} if after else {})})).json()
        after = page["next"]
        one += page["items"]
    assert one == listed["items"]
    found = [(one["name"], one["kind"], one["version"]) for one in listed["items"]]
    assert ("release", "job", 3) in found
    assert ("Order", "machine", 1) in found
    started = await http.post("/instances", json={"definition": "release", "id": "r-1"})
    assert started.status_code == 201
    await reached(http, "r-1", "awaiting_children")
    [task] = (await http.get("/instances/r-1/tasks")).json()["tasks"]
    assert (task["name"], task["type"]) == ("ok", "approval")
    for path in ("/definitions/release/diagram.svg", "/instances/r-1/diagram.svg"):
        drawn = await http.get(path)
        assert (drawn.status_code, drawn.headers["content-type"]) == (200, "image/svg+xml; charset=utf-8")
        assert ">ok</text>" in drawn.text
    gone = await http.delete("/definitions/release")
    assert (gone.status_code, gone.json()) == (200, {"undeployed": "release"})
    assert (await http.post("/instances", json={"definition": "release"})).status_code == 404
    assert "release" not in [one["name"] for one in (await http.get("/definitions")).json()["items"]]
    assert (await http.delete("/definitions/nothing")).status_code == 404
    assert (await http.get("/instances/r-1")).status_code == 200  # it lives on


REFUSED: list[tuple[str | bytes, str]] = [
    ("name: x\ntasks: []\n", "application/yaml"),
    ("", "application/yaml"),
    ("/etc/passwd", "application/yaml"),
    ("{", "application/json"),
    ("[]", "application/json"),
    (b"\xff", "application/yaml"),
    ("<x/>", "text/html"),
    ("<x/>", "application/yaml"),
]


async def test_what_is_not_a_job_is_refused_with_its_problems(http: httpx.AsyncClient) -> None:
    for text, kind in REFUSED:
        answer = await http.post("/definitions", content=text, headers={"Content-Type": kind})
        assert answer.status_code == 400, text
        assert answer.json()["error"]
        assert {"element", "line", "message"} == set(answer.json()["problems"][0])


async def test_deploying_needs_its_own_scope(store: Store) -> None:
    """A deployed job runs commands on workers: a token that may start instances may not deploy."""
    app = app_on(store)
    async with app:
        tokens = {scope: await app.create_token([scope], name=scope) for scope in ("operate", "read", "deploy")}
    async with serving(app_on(store), require_token=True) as http:
        for scope, token in tokens.items():
            headers = {**YAML, "Authorization": f"Bearer {token.secret}"}
            answer = await http.post("/definitions", content=JOB, headers=headers)
            assert answer.status_code == (201 if scope == "deploy" else 403), scope
            assert (await http.delete("/definitions/release", headers=headers)).status_code == (
                200 if scope == "deploy" else 403
            )
