"""J4: the command line, HTTP and the answer page say what a right answer of a gate looks like, ready to be copied."""

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from hark import Dag, Hark
from tests.doors.support_cli import Cli, store_options
from tests.support.http import serving
from tests.support.stores import Store

RIGHT = [{"action": "approve"}, {"action": "reject", "reason": "why not"}]


@asynccontextmanager
async def gated(store: Store) -> AsyncIterator[tuple[Hark, httpx.AsyncClient, str]]:
    """A server, and the id of the question of a gate."""
    dag = Dag("gated")
    dag.task("verify", run="echo checked", gate="user_approval")
    app = Hark(store.url, **store.options)
    app.register(dag)
    async with serving(app) as client:
        job = await app.start(dag)
        yield app, client, (await app.wait_for_awakeable(job=job, timeout=60)).id


@pytest.mark.parametrize("answer", ["approved", '{"action":"aprove"}', "true", "null"])
def test_j4_the_command_line_prints_the_command_with_a_right_answer(cli: Cli, tmp_path: Path, answer: str) -> None:
    file = tmp_path / "gated.yaml"
    file.write_text("name: gated\ntasks:\n  - {name: verify, run: echo checked, gate: user_approval}\n", "utf-8")
    assert cli("job", "run", str(file), "--id", "g-1").code == 75
    [asked] = cli("awakeable", "list", "--job", "g-1", "--json").json
    refused = cli("awakeable", "resolve", asked["id"], "--payload", answer).error_line(2)
    assert "not valid under any" not in refused
    [command] = re.findall(r"For example: `hark (.*)`$", refused)
    words = shlex.split(command)
    assert words[:5] == ["awakeable", "resolve", asked["id"], "--payload", '{"action":"approve"}']
    assert words[5:] == store_options(cli.store)
    assert cli(*words[:5]).code == 0


@pytest.mark.parametrize("body", [b'"approved"', b'{"action":"aprove"}', b"true", b"null", b""])
async def test_j4_over_http_the_error_has_answers_to_copy(store: Store, body: bytes) -> None:
    async with gated(store) as (app, client, id):
        refused = await client.post(f"/awakeables/{id}/resolve", content=body)
        assert (refused.status_code, refused.json()["type"]) == (422, "InvalidAnswer")
        assert refused.json()["examples"] == RIGHT
        assert '{"action":"approve"}' in refused.json()["error"]
        resolved = await client.post(f"/awakeables/{id}/resolve", json={"action": "approve", "data": {"key": "value"}})
        assert resolved.json() == {
            "success": True, "awakeable_id": id, "payload": {"action": "approve", "data": {"key": "value"}},
            "message": "Awakeable resolved successfully",
        }  # fmt: skip
        assert (await app.awakeable(id)).status == "RESOLVED"


async def test_j4_plain_text_over_http_is_told_the_same(store: Store) -> None:
    async with gated(store) as (app, client, id):
        for url in (f"/awakeables/{id}/resolve", (await app.awakeable(id)).url):
            refused = await client.post(url, content=b"approved", headers={"content-type": "application/json"})
            body = refused.json()
            assert (refused.status_code, body["type"], body["line"], body["column"]) == (400, "MalformedJson", 1, 1)
            assert body["error"].endswith(
                'correct it and send it again. An answer looks like {"action":"approve"} or '
                '{"action":"reject","reason":"why not"}.'
            )
        missing = await client.post("/awakeables/prom_1nope/resolve", content=b"approved")
        assert (missing.status_code, "looks like" in missing.json()["error"]) == (400, False)


async def test_j4_the_answer_page_has_two_buttons_and_tells_a_program_the_same(store: Store) -> None:
    async with gated(store) as (app, client, id):
        url = (await app.awakeable(id)).url
        page = (await client.get(url)).text
        assert "Approve" in page
        assert re.findall(r'<textarea id="(\w+)"', page) == ["reason"], "an approval needs no other field"
        refused = await client.post(url, content=b'"approved"', headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["examples"]) == (422, RIGHT)
        kept = {"action": "approve", "data": [1]}
        assert (await client.post(url, json=kept)).status_code == 200
        assert (await app.awakeable(id)).payload == kept
