"""D3, X3: the page behind a signed link, over a real server. GET shows the question, POST answers it once."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hark import Hark, workflow
from hark.app.door_access import DoorAccess
from tests.support.http import app_on, serving
from tests.support.inspect import everything, until
from tests.support.questions import Asker, ask
from tests.support.stores import Store

FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"accept": "application/json"}


@dataclass
class Verdict:
    approve: bool
    amount: int
    comment: str = ""


@asynccontextmanager
async def served_question(store: Store, **question: Any) -> AsyncIterator[tuple[Hark, httpx.AsyncClient, str, str]]:
    """A server, a client, a question and its link."""
    app = app_on(store)
    app.register(Asker)
    async with serving(app, worker=False) as client:
        id = await ask(app, store, **question)
        yield app, client, id, (await app.awakeable(id)).url


async def hidden_fields(client: httpx.AsyncClient, url: str) -> dict[str, str]:
    """The hidden field that a browser posts with the form."""
    page = await client.get(url)
    assert page.status_code == 200, page.text
    [signature] = re.findall(r'name="form" value="([^"]+)"', page.text)
    return {"form": signature, "do": "resolve"}


async def test_d3_the_page_shows_the_question(store: Store) -> None:
    question = {"title": "Pay <Acme>?", "description": "Line 1\nLine 2", "assignees": ["Ann", "Bob"], "timeout": 7201}
    async with served_question(store, **question, schema=Verdict) as (_, client, _, url):
        page = await client.get(url)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for text in ("Pay &lt;Acme&gt;?", "Line 1\nLine 2", "For Ann, Bob", "2 hours left", "UTC", "Reject instead"):
            assert text in page.text, text
        for name in ("v/approve", "v/amount", "v/comment", "by", "reason"):
            assert f'name="{name}"' in page.text, name


async def test_d3_a_posted_form_resolves_the_awakeable(store: Store) -> None:
    async with served_question(store, schema=Verdict) as (app, client, id, url):
        form = await hidden_fields(client, url)
        sent = await client.post(url, data={**form, "v/approve": "0", "v/amount": "3", "by": "Ann"})
        assert sent.status_code == 303
        thanks = await client.get(httpx.URL(url).join(sent.headers["location"]))
        assert thanks.status_code == 200
        assert "Thank you" in thanks.text
        settled = await app.awakeable(id)
        assert (settled.status, settled.payload) == ("RESOLVED", {"approve": True, "amount": 3})
        assert settled.answered_by == "Ann"
        [_, event] = [event for event in await app.events("asker") if event.type == "awakeable"]
        assert event.data == {"awakeable": id, "status": "RESOLVED", "by": "Ann", "via": "link"}


async def test_d3_without_a_schema_the_answer_is_text_or_null(store: Store) -> None:
    async with served_question(store) as (app, client, id, url):
        form = await hidden_fields(client, url)
        assert (await client.post(url, data={**form, "v": "go ahead"})).status_code == 303
        assert (await app.awakeable(id)).payload == "go ahead"
        second = await ask(app, store, "second")
        other = (await app.awakeable(second)).url
        assert (await client.post(other, data={**await hidden_fields(client, other), "v": ""})).status_code == 303
        settled = await app.awakeable(second)
        assert (settled.status, settled.payload, settled.answered_by) == ("RESOLVED", None, None)


async def test_d3_a_rejection_needs_no_fields_and_keeps_its_reason(store: Store) -> None:
    async with served_question(store, schema=Verdict) as (app, client, id, url):
        form = await hidden_fields(client, url)
        sent = await client.post(url, data={**form, "do": "reject", "reason": "too expensive", "by": "Bob"})
        assert sent.status_code == 303
        settled = await app.awakeable(id)
        assert (settled.status, settled.error, settled.answered_by) == ("REJECTED", "too expensive", "Bob")
        page = await client.get(url)
        assert "Rejected" in page.text
        assert "by Bob" in page.text


async def test_d3_problems_are_beside_their_fields_and_what_was_typed_is_kept(store: Store) -> None:
    async with served_question(store, schema=Verdict) as (app, client, id, url):
        before = await everything(store)
        form = await hidden_fields(client, url)
        typed = {**form, "v/amount": "lots", "v/comment": "<b>bold</b>", "by": "Ann", "reason": "r"}
        page = await client.post(url, data=typed)
        assert page.status_code == 422
        assert 'role="alert"' in page.text
        assert 'value="lots"' in page.text
        assert "&lt;b&gt;bold&lt;/b&gt;" in page.text
        assert 'value="Ann"' in page.text
        text = html.unescape(page.text)
        assert '"lots" is not of type "integer"' in text
        assert "Please fill this in." in text
        assert await everything(store) == before
        [signature] = re.findall(r'name="form" value="([^"]+)"', page.text)
        again = {**typed, "form": signature, "v/amount": "3", "v/approve": "1"}
        assert (await client.post(url, data=again)).status_code == 303
        assert (await app.awakeable(id)).payload == {"approve": False, "amount": 3, "comment": "<b>bold</b>"}


async def test_d3_a_problem_of_the_whole_answer_is_shown_on_the_page(sqlite_store: Store) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "minProperties": 1}
    async with served_question(sqlite_store, schema=schema) as (_, client, _, url):
        page = await client.post(url, data=await hidden_fields(client, url))
        assert page.status_code == 422
        assert "has less than 1 property" in page.text


async def test_d3_a_single_assignee_is_recorded_and_several_choose_their_name(store: Store) -> None:
    async with served_question(store, assignees=["ann"]) as (app, client, id, url):
        await client.post(url, data={**await hidden_fields(client, url), "v": "x", "by": "mallory"})
        assert (await app.awakeable(id)).answered_by == "ann"
        second = await ask(app, store, "second", assignees=["ann", "bob"])
        other = (await app.awakeable(second)).url
        form = await hidden_fields(client, other)
        for name in ("", "mallory"):
            page = await client.post(other, data={**form, "v": "typed", "by": name})
            assert page.status_code == 422
            assert "choose your name" in page.text
            assert "typed" in page.text
        assert (await client.post(other, data={**form, "v": "x", "by": "bob"})).status_code == 303
        assert (await app.awakeable(second)).answered_by == "bob"


async def test_fault_42_a_second_answer_sees_who_answered_first_and_when(store: Store) -> None:
    async with served_question(store, title="Deploy?") as (app, client, id, url):
        form = await hidden_fields(client, url)
        pages = await asyncio.gather(*(client.post(url, data={**form, "v": str(n), "by": f"b{n}"}) for n in range(8)))
        assert sorted(page.status_code for page in pages) == [303] + [409] * 7
        winner = await app.awakeable(id)
        for page in pages:
            if page.status_code == 409:
                assert f"answered by {winner.answered_by} on " in page.text
                assert "Deploy?" in page.text
        told = [event.data["status"] for event in await app.events("asker") if event.type == "awakeable"]
        assert told == ["PENDING", "RESOLVED"]


async def test_fault_46_a_question_that_was_withdrawn_says_so(store: Store) -> None:
    async with served_question(store) as (app, client, _, url):
        form = await hidden_fields(client, url)
        await app.cancel("asker")
        late = await client.post(url, data={**form, "v": "x"})
        assert late.status_code == 409
        assert "withdrawn" in late.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_fault_67_a_scanner_that_opens_the_link_answers_nothing(store: Store, method: str) -> None:
    async with served_question(store) as (_, client, _, url):
        before = await everything(store)
        for suffix in ("", "&do=resolve&v=yes", "&do=reject", "&sent=1", "&utm_source=mail"):
            page = await client.request(method, url + suffix)
            assert page.status_code == 200
            assert (page.text == "") == (method == "HEAD")
        assert await everything(store) == before


async def test_fault_66_every_link_that_does_not_work_is_the_same_404(store: Store) -> None:
    async with served_question(store) as (app, client, id, url):
        gone = await ask(app, store, "gone", timeout=0.001)
        other = await ask(app, store, "other")
        token = url.partition("?t=")[2]
        links = [
            f"/a/{id}", f"/a/{id}?t=", f"/a/{id}?t=x", f"/a/{id}?t={token[:-1]}", f"/a/{id}?t={token}x",
            f"/a/{id}?t={token.swapcase()}", f"/a/{other}?t={token}", f"/a/prom_1bm9ib2R5OjA?t={token}",
            f"/a/x?t={token}", f"/a/%00?t={token}", f"/a/{'x' * 400}?t={token}", f"/a/{id}?t=%ff%00",
            f"/a/{id}?t=x&t={token}", (await app.awakeable(gone)).url,
        ]  # fmt: skip
        for headers in ({}, JSON):
            seen = set()
            for link in links:
                for method in ("GET", "POST"):
                    page = await client.request(method, link, headers={**headers, **(FORM if method == "POST" else {})})
                    kept = {k: v for k, v in page.headers.items() if k not in ("date",)}
                    seen.add((page.status_code, page.text, tuple(sorted(kept.items()))))
            assert len(seen) == 1, [one[:2] for one in seen]
            [(status, text, _)] = seen
            assert status == 404
            assert token not in text
            assert id not in text


async def test_x3_a_form_from_another_page_is_refused(store: Store) -> None:
    """The hidden field must be there, for this link and this browser; what was typed is kept."""
    async with served_question(store) as (app, client, id, url):
        form = await hidden_fields(client, url)
        other = (await app.awakeable(await ask(app, store, "other"))).url
        strange = await hidden_fields(client, other)
        before = await everything(store)
        for wrong in ({"do": "resolve"}, {**form, "form": ""}, {**form, "form": "é"}, strange):
            page = await client.post(url, data={**wrong, "v": "kept text"})
            assert page.status_code == 403
            assert "kept text" in page.text
        async with httpx.AsyncClient(timeout=60) as elsewhere:
            assert (await elsewhere.post(url, data={**form, "v": "x"})).status_code == 403
            elsewhere.cookies.set("hark_form", "x" * 24)
            again = await elsewhere.post(url, data={**form, "v": "x"})
            assert again.status_code == 403
            [signature] = re.findall(r'name="form" value="([^"]+)"', again.text)
            assert await everything(store) == before
            assert (await elsewhere.post(url, data={"do": "resolve", "form": signature, "v": "x"})).status_code == 303
        assert (await app.awakeable(id)).payload == "x"


async def test_x3_every_page_has_the_security_headers(store: Store) -> None:
    async with served_question(store, schema=Verdict) as (_, client, _, url):
        form = await hidden_fields(client, url)
        pages = [
            await client.get(url),
            await client.post(url, data=form),
            await client.post(url, data={"form": "x"}),
            await client.get("/a/x?t=x"),
            await client.post(url, data={**form, "v/amount": "1", "v/approve": "0"}),
            await client.get(url),
            await client.post(url, data=form),
        ]
        assert [page.status_code for page in pages] == [200, 422, 403, 404, 303, 200, 409]
        for page in pages:
            if page.status_code != 303:
                policy = page.headers["content-security-policy"]
                assert policy.startswith("default-src 'none'; style-src 'self';")
                assert "script" not in policy
                assert "frame-ancestors 'none'" in policy
                assert not re.search(r"<script|<style|\bstyle=|\bon[a-z]+=", page.text)
            assert page.headers["referrer-policy"] == "no-referrer"
            assert page.headers["cache-control"] == "no-store"
            assert page.headers["x-frame-options"] == "DENY"
            assert page.headers["x-content-type-options"] == "nosniff"
        cookie = pages[0].headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie


async def test_x3_the_link_works_from_an_email_and_through_a_proxy(store: Store) -> None:
    """Headers that make a request without a credential a drive-by do not matter with a link."""
    async with served_question(store) as (app, client, id, url):
        strange = {
            "host": "ask.example", "sec-fetch-site": "cross-site", "x-forwarded-for": "203.0.113.7", "origin": "null",
        }  # fmt: skip
        form = await hidden_fields(client, url)
        assert (await client.get(url, headers=strange)).status_code == 200
        assert (await client.post(url, data={**form, "v": "x"}, headers=strange)).status_code == 303
        assert (await app.awakeable(id)).status == "RESOLVED"


async def test_d3_a_workflow_sends_its_link_and_gets_the_typed_answer(store: Store) -> None:
    mailed: list[tuple[str, str]] = []

    def mail(id: str, url: str) -> None:
        mailed.append((id, url))

    @workflow
    async def pay(ctx: Any, invoice: str) -> Any:
        question = await ctx.awakeable(title=f"Pay {invoice}?", schema=Verdict, timeout=3600, assignees=["ann"])
        await ctx.run(mail, question.id, question.url)
        verdict = await question
        assert isinstance(verdict, Verdict)
        return [verdict.approve, verdict.amount]

    app = app_on(store)
    app.register(pay)
    async with serving(app) as client:
        run = await app.start(pay, {"invoice": "2026-117"})
        await until(lambda: mailed, "the link")
        [(id, url)] = mailed
        assert url.startswith(str(client.base_url))
        form = await hidden_fields(client, url)
        assert (await client.post(url, data={**form, "v/approve": "0", "v/amount": "3"})).status_code == 303
        assert await run.result(timeout=20) == [True, 3]
        assert (await app.awakeable(id)).answered_by == "ann"
        assert url.partition("?t=")[2] not in repr(await everything(store))


async def test_d3_a_question_is_approved_or_rejected_with_a_button(store: Store) -> None:
    gate = {"properties": {"action": {"enum": ["approve", "reject"]}, "reason": {}}, "required": ["action"]}
    async with served_question(store, schema=gate) as (app, client, id, url):
        page = await client.get(url)
        assert ">Approve</button>" in page.text
        assert 'name="v/' not in page.text
        assert (await client.post(url, data=await hidden_fields(client, url))).status_code == 303
        assert (await app.awakeable(id)).payload == {"action": "approve"}
        second = await ask(app, store, "second", schema=gate)
        other = (await app.awakeable(second)).url
        refused = {**await hidden_fields(client, other), "do": "reject", "reason": "not yet"}
        assert (await client.post(other, data=refused)).status_code == 303
        settled = await app.awakeable(second)
        assert (settled.status, settled.payload) == ("RESOLVED", {"action": "reject", "reason": "not yet"})


async def test_d3_the_page_works_under_the_prefix_of_another_application(sqlite_store: Store) -> None:
    app = Hark(sqlite_store.url, base_url="https://shop.example/hark")
    async with app:
        id = await ask(app, sqlite_store)
        shop = httpx.ASGITransport(Starlette(routes=[Mount("/hark", app.asgi())]))
        async with httpx.AsyncClient(transport=shop) as client:
            url = (await app.awakeable(id)).url
            assert url.startswith("https://shop.example/hark/a/")
            page = await client.get(url)
            assert "Path=/hark/a/" in page.headers["set-cookie"]
            assert "; Secure" in page.headers["set-cookie"]
            [style] = re.findall(r'rel="stylesheet" href="([^"]+)"', page.text)
            assert (await client.get(httpx.URL(url).join(style))).status_code == 200
            sent = await client.post(url, data={**await hidden_fields(client, url), "v": "x"})
            assert (await client.get(httpx.URL(url).join(sent.headers["location"]))).status_code == 200
        assert (await app.awakeable(id)).payload == "x"


async def test_d3_programs_read_and_answer_in_json(store: Store) -> None:
    async with served_question(store, title="Pay?", schema=Verdict, assignees=["ann"]) as (app, client, id, url):
        shown = (await client.get(url, headers=JSON)).json()
        assert (shown["awakeable_id"], shown["status"], shown["title"]) == (id, "PENDING", "Pay?")
        assert shown["assignees"] == ["ann"]
        assert "url" not in shown
        bad = await client.post(url, json={"approve": 1, "amount": 2}, headers=JSON)
        assert (bad.status_code, bad.json()["problems"]) == (422, ['approve: 1 is not of type "boolean"'])
        broken = await client.post(url, content=b"{", headers={**JSON, "content-type": "application/json"})
        assert broken.status_code == 400
        good = await client.post(url, json={"approve": True, "amount": 2})
        assert good.json() == {
            "success": True, "awakeable_id": id, "payload": {"approve": True, "amount": 2},
            "message": "Awakeable resolved successfully",
        }  # fmt: skip
        assert (await app.awakeable(id)).answered_by == "ann"
        assert (await client.post(url, json={"approve": True, "amount": 2})).status_code == 409


async def test_d3_programs_name_the_answerer_when_there_are_several_assignees(store: Store) -> None:
    async with served_question(store, assignees=["ann", "bob"]) as (app, client, id, url):
        for by in ("", "&by=mallory"):
            refused = await client.post(url + by, json=1)
            assert refused.status_code == 403
            assert "ann, bob" in refused.json()["error"]
        assert (await client.post(url + "&by=bob", json=1)).status_code == 200
        assert (await app.awakeable(id)).answered_by == "bob"


async def test_x5_a_person_sees_a_page_when_the_store_does_not_respond(sqlite_store: Store) -> None:
    async with served_question(sqlite_store) as (app, client, _, url):
        await app.__aexit__(None, None, None)
        page = await client.get(url)
        assert page.status_code == 503
        assert "This page cannot be shown" in page.text
        assert (await client.get(url, headers=JSON)).json()["error"]
        await app.__aenter__()


async def test_d3_malformed_cookies_of_other_programs_on_this_host_do_not_matter(store: Store) -> None:
    async with served_question(store) as (_, client, _, url):
        form = await hidden_fields(client, url)
        ours = client.cookies["hark_form"]
        client.cookies.clear()
        cookies = {"cookie": f'odd[]={{"a": 1}}; ;; =x; hark_form={ours}; b@d=é'.encode()}
        assert (await client.post(url, data={**form, "v": "x"}, headers=cookies)).status_code == 303


async def test_d3_programs_reject_in_json(store: Store) -> None:
    async with served_question(store) as (app, client, id, url):
        refuse = url.replace("?", "/reject?") + "&by=robot"
        assert (await client.post(refuse.replace("t=", "t=x"), json={})).status_code == 404
        done = await client.post(refuse, json={"error": "no"})
        assert (done.status_code, done.json()["error"]) == (200, "no")
        settled = await app.awakeable(id)
        assert (settled.status, settled.error, settled.answered_by) == ("REJECTED", "no", "robot")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xff=1", 422),
        (b"&".join(b"a%d=1" % n for n in range(3000)), 422),
        (b"v=" + b"x" * (4 << 20), 413),
    ],
    ids=["not UTF-8", "too many fields", "too large"],
)
async def test_x4_a_form_that_cannot_be_read_is_refused_with_a_page(store: Store, body: bytes, status: int) -> None:
    async with served_question(store) as (_, client, _, url):
        before = await everything(store)
        page = await client.post(url, content=body, headers=FORM)
        assert page.status_code == status
        assert "Your answer was not accepted" in page.text
        assert (await client.post(url, content=b"x", headers={"content-type": "text/plain"})).status_code == 422
        assert await everything(store) == before


@pytest.mark.parametrize(
    ("typed", "status"),
    [({"v": "a\0b"}, 422), ({"by": "x" * 300, "v": "x"}, 422), ({"do": "reject", "reason": "a\0b"}, 422)],
    ids=["a NUL", "a name without end", "a NUL in the reason"],
)
async def test_x4_an_answer_with_invalid_characters_is_refused_on_the_page(
    store: Store, typed: Any, status: int
) -> None:
    async with served_question(store) as (_, client, _, url):
        page = await client.post(url, data={**await hidden_fields(client, url), **typed})
        assert page.status_code == status
        assert 'role="alert"' in page.text


async def test_x4_an_answer_at_the_limit_is_accepted_and_one_above_is_413(sqlite_store: Store) -> None:
    async with served_question(sqlite_store) as (app, client, id, url):
        form = await hidden_fields(client, url)
        most = DoorAccess(app).max_payload - 2  # its quotation marks
        assert (await client.post(url, data={**form, "v": "é" * (most // 2) + "xx"})).status_code == 413
        assert (await client.post(url, data={**form, "v": "é" * (most // 2)})).status_code == 303
        assert (await app.awakeable(id)).status == "RESOLVED"


async def test_d3_its_files_are_served_and_no_others(store: Store) -> None:
    async with served_question(store) as (_, client, _, url):
        page = await client.get(url)
        [style] = re.findall(r'rel="stylesheet" href="([^"]+)"', page.text)
        sheet = await client.get(httpx.URL(url).join(style))
        assert (sheet.status_code, sheet.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert "prefers-color-scheme: dark" in sheet.text
        assert (await client.get("/a/static/icon.svg")).headers["content-type"] == "image/svg+xml"
        for wrong in ("nothing.css", "..%2ftemplates%2fquestion.html", "%2e%2e", "answer.css%00"):
            assert (await client.get(f"/a/static/{wrong}")).status_code == 404


async def test_x3_no_token_of_a_link_is_logged(sqlite_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    async with served_question(sqlite_store) as (_, client, _, url):
        form = await hidden_fields(client, url)
        await client.post(url, data={**form, "v": "x"})
        await client.post(url, data={**form, "v": "x"})
        await client.get(url + "x")
        token = url.partition("?t=")[2]
        assert not any(token in record.getMessage() for record in caplog.records)


async def test_a8_a_large_wrong_answer_through_a_link_is_refused_and_the_question_stays_open(store: Store) -> None:
    rows = {"type": "array", "items": {"type": "object", "required": ["a", "b", "c"]}}
    async with served_question(store, schema=rows) as (app, client, id, url):
        answer = b"[" + b",".join([b"{}"] * 97_000) + b"]"
        sent = await client.post(url, content=answer, headers={"Content-Type": "application/json"})
        assert sent.status_code == 422
        assert len(sent.json()["problems"]) == 20
        assert (await app.awakeable(id)).status == "PENDING"
        assert (await client.post(url, json=[{"a": 1, "b": 2, "c": 3}])).status_code == 200
