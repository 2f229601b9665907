"""X3, fault 66: tokens have scopes, are stored as hashes, are revoked immediately and never logged."""

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from hark import Hark, InvalidInput, NotFound
from tests.support.http import app_on, ask, serving
from tests.support.inspect import everything, until
from tests.support.stores import Store

SCOPES = ("read", "signal", "answer", "operate", "deploy")


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    app = app_on(store)
    async with app:
        yield app


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app, worker=False, require_token=True) as client:
        yield client


def bearer(secret: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def test_x3_a_token_is_shown_once_and_kept_as_a_hash(app: Hark, store: Store) -> None:
    token = await app.create_token(["answer", "read", "read"], name="ann")
    assert token.secret is not None
    assert token.secret.startswith("hark_")
    assert len(token.secret) >= 48
    assert (token.name, token.scopes, token.revoked_at) == ("ann", ("read", "answer"), None)
    assert token.secret not in repr(token)
    assert token.secret not in str(await everything(store))
    [listed] = await app.tokens()
    assert listed.secret is None
    assert listed.id == token.id


@pytest.mark.parametrize("scopes", [[], None, "admin", ["read", "admin"], [1], 5, {"read": True}])
async def test_x3_scopes_that_do_not_exist_are_refused(app: Hark, scopes: Any) -> None:
    with pytest.raises(InvalidInput, match="read, signal, answer, operate, work, deploy"):
        await app.create_token(scopes)
    assert await app.tokens() == []


async def test_x3_a_token_may_expire(app: Hark) -> None:
    until_then = datetime.now(UTC) + timedelta(days=1)
    assert (await app.create_token("read", expires=until_then)).expires_at == until_then
    lasting = await app.create_token("read", expires=60)
    assert lasting.expires_at is not None
    assert lasting.expires_at - lasting.created_at == timedelta(seconds=60)
    for bad in (0, -1, "tomorrow", datetime(2030, 1, 1)):
        with pytest.raises(InvalidInput):
            await app.create_token("read", expires=bad)  # type: ignore[arg-type]


ROUTES = {
    "read": [("GET", "/instances"), ("GET", "/awakeables"), ("GET", "/events"), ("GET", "/waits"), ("GET", "/metrics"),
             ("GET", "/openapi.json"), ("GET", "/"), ("GET", "/instances/x"), ("GET", "/instances/x/stream")],
    "signal": [("POST", "/signal"), ("POST", "/instances/x/signals/y")],
    "answer": [("POST", "/awakeables/x/resolve"), ("POST", "/awakeables/x/reject")],
    "operate": [("POST", "/instances"), ("POST", "/instances/x/cancel"), ("POST", "/instances/x/retry"),
                ("PUT", "/schedules/x"), ("DELETE", "/schedules/x"), ("POST", "/schedules/x/trigger")],
}  # fmt: skip


async def test_x3_a_token_allows_what_its_scopes_say_and_nothing_else(http: httpx.AsyncClient, app: Hark) -> None:
    for scope in SCOPES:
        token = await app.create_token([scope])
        for needed, routes in ROUTES.items():
            for method, path in routes:
                answer = await http.request(method, path, headers=bearer(token.secret))
                if scope == needed:
                    assert answer.status_code in (200, 404, 422), (scope, path, answer.text)
                else:
                    assert answer.status_code == 403, (scope, path)
                    assert needed in answer.json()["error"]


async def test_x3_without_a_valid_token_it_is_401(http: httpx.AsyncClient, app: Hark) -> None:
    token = await app.create_token(SCOPES)
    assert token.secret is not None
    for headers in ({}, bearer("hark_" + "x" * 43), bearer(token.secret[:-1]), bearer(token.id), bearer("x" * 5000)):
        for method, path in ((m, p) for routes in ROUTES.values() for m, p in routes):
            answer = await http.request(method, path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="hark"'
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/instances", headers=bearer(token.secret))).status_code == 200


async def test_x3_a_revoked_token_is_refused_from_the_next_request_on(http: httpx.AsyncClient, app: Hark) -> None:
    token = await app.create_token("read")
    assert (await http.get("/instances", headers=bearer(token.secret))).status_code == 200
    revoked = await app.revoke_token(token.id)
    assert revoked.revoked_at is not None
    assert (await http.get("/instances", headers=bearer(token.secret))).status_code == 401
    assert (await app.revoke_token(token.id)).revoked_at == revoked.revoked_at
    with pytest.raises(NotFound, match="token list"):
        await app.revoke_token("unknown")


async def test_x3_an_expired_token_is_refused(http: httpx.AsyncClient, app: Hark) -> None:
    token = await app.create_token("read", expires=0.5)

    async def shut() -> bool:
        return (await http.get("/instances", headers=bearer(token.secret))).status_code == 401

    assert not await shut()
    await until(shut, "the token to expire")


async def test_x3_the_link_of_an_awakeable_is_shown_only_with_the_scope_answer(
    http: httpx.AsyncClient, app: Hark, store: Store
) -> None:
    await ask(store, "prom_1")
    for scopes, shown in (
        (["read"], False),
        (["read", "operate", "signal", "deploy"], False),
        (["read", "answer"], True),
    ):
        token = await app.create_token(scopes)
        one = (await http.get("/awakeables/prom_1", headers=bearer(token.secret))).json()
        [listed] = (await http.get("/awakeables", headers=bearer(token.secret))).json()["items"]
        assert (one["url"] is not None) is (listed["url"] is not None) is shown


async def test_a8_an_answer_with_a_token_is_recorded_under_its_name(
    http: httpx.AsyncClient, app: Hark, store: Store
) -> None:
    await ask(store, "prom_1", "prom_2", assignees='["ann"]')
    bob, ann = await app.create_token("answer", name="bob"), await app.create_token("answer", name="ann")
    refused = await http.post("/awakeables/prom_1/resolve", headers=bearer(bob.secret))
    assert refused.status_code == 403
    assert "ann" in refused.json()["error"]
    assert (await http.post("/awakeables/prom_1/resolve", headers=bearer(ann.secret))).status_code == 200
    assert (await app.awakeable("prom_1")).answered_by == "ann"
    nameless = await app.create_token("answer")
    assert (await http.post("/awakeables/prom_2/resolve", headers=bearer(nameless.secret))).status_code == 403


async def test_x3_a_token_works_through_a_proxy_and_with_any_host_name(app: Hark) -> None:
    token = await app.create_token("read")
    async with serving(app, worker=False) as http:
        headers = {**bearer(token.secret), "Host": "hark.example", "X-Forwarded-For": "192.0.2.1"}
        assert (await http.get("/instances", headers=headers)).status_code == 200
        assert (await http.get("/instances")).status_code == 200  # without a credential, from this machine
        assert (
            await http.post("/signal", headers=headers)
        ).status_code == 403  # a token that lacks the scope is refused nevertheless


async def test_x3_a_server_on_another_address_starts_once_there_is_a_token(app: Hark) -> None:
    token = await app.create_token("read")
    async with serving(app, worker=False, host="0.0.0.0") as http:
        local = f"http://127.0.0.1:{http.base_url.port}"
        assert (await http.get(f"{local}/instances")).status_code == 401
        assert (await http.get(f"{local}/instances", headers=bearer(token.secret))).status_code == 200
    await app.revoke_token(token.id)
    with pytest.raises(InvalidInput, match="token"):
        async with serving(app, worker=False, host="0.0.0.0"):
            pass


async def test_x3_no_token_is_ever_logged(
    http: httpx.AsyncClient, app: Hark, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore"):  # of the client
        logging.getLogger(name).setLevel(logging.WARNING)
    token = await app.create_token("read")
    assert token.secret is not None
    await http.get("/instances", headers=bearer(token.secret))
    await http.get(f"/a/prom_1?t={token.secret}")
    await http.get(f"/nowhere?t={token.secret}", headers=bearer(token.secret + "x"))
    out, err = capfd.readouterr()
    assert token.secret not in caplog.text + out + err
