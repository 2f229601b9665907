"""D3: the page shows what was answered, to the person who answered and to anyone who opens the link later."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from hark.doors.http.given_answer import GivenValue, given_answer
from hark.model import json
from hark.model.schema import compile_schema
from tests.doors.test_d3_answer_page import hidden_fields, served_question
from tests.support.stores import Store


class Method(Enum):
    TRANSFER = "bank_transfer"
    CARD = "card"


@dataclass
class Address:
    street: str


@dataclass
class Payment:
    approve: bool
    method: Method
    address: Address
    tags: list[str] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    note: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def lines(values: list[GivenValue], depth: int = 0) -> list[str]:
    found = []
    for value in values:
        found.append(f"{'  ' * depth}{value.label}: {value.text}".rstrip())
        found += lines(value.inner, depth + 1)
    return found


def shown(kind: Any, payload: Any) -> list[str]:
    text, _ = compile_schema(kind)
    return lines(given_answer(None if text is None else json.load(text), payload))


def test_d3_an_answer_is_shown_in_the_words_of_the_form() -> None:
    payload = {
        "approve": True, "method": "bank_transfer", "address": {"street": "1 Main St"}, "tags": ["a", "b"],
        "methods": ["card", "bank_transfer"], "note": None, "extra": {"po": 7, "deep": {"x": [1]}},
    }  # fmt: skip
    assert shown(Payment, payload) == [
        "Approve: Yes", "Method: Bank transfer", "Address:", "  Street: 1 Main St", "Tags: a\nb",
        "Methods: Card\nBank transfer", "Note: None",
        'Extra: {\n  "po": 7,\n  "deep": {\n    "x": [\n      1\n    ]\n  }\n}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (None, None, []),
        (None, "go ahead", [": go ahead"]),
        (None, {"order_id": 7, "ok": False}, ["Order id: 7", "Ok: No"]),
        (None, [[1]], [": [\n  [\n    1\n  ]\n]"]),
        (int, 5, [": 5"]),
        (list[str], [], [": (none)"]),
        ({"type": "string"}, "", [": (empty)"]),
        (Payment, "not even an object", [": not even an object"]),
        ({"properties": {"pin": {"type": "string", "format": "password"}}}, {"pin": "1234"}, ["Pin: (not shown)"]),
        ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2, "title": "Two"}]}, 2, [": Two"]),
        ({"properties": {"action": {"enum": ["approve", "reject"]}, "reason": {"type": "string"}}},
         {"action": "reject", "reason": "no"}, ["Action: Reject", "Reason: no"]),
    ],
)  # fmt: skip
def test_d3_any_answer_can_be_shown(kind: Any, payload: Any, expected: list[str]) -> None:
    assert shown(kind, payload) == expected


def test_d3_a_large_answer_is_shown_in_part() -> None:
    many = shown(None, {f"k{n}": "x" * 10_000 for n in range(500)})
    assert len(many) < 110
    assert max(map(len, many)) < 2100


async def test_d3_the_page_shows_the_answer_its_answerer_and_its_time(store: Store) -> None:
    async with served_question(store, title="Pay?", schema=Payment) as (app, client, id, url):
        form = await hidden_fields(client, url)
        values = {"v/approve": "0", "v/method": "1", "v/address/street": "<b>1 Main St</b>", "by": "Ann"}
        sent = await client.post(url, data={**form, **values})
        assert sent.status_code == 303
        at = (await app.awakeable(id)).resolved_at
        assert at is not None
        for page in (await client.get(f"{url}&sent=1"), await client.get(url), await client.post(url, data=form)):
            for text in ("Approve", "Yes", "Card", "&lt;b&gt;1 Main St&lt;/b&gt;", "by Ann", f"{at:%H:%M} UTC"):
                assert text in page.text, text
        as_json = (await client.get(url, headers={"Accept": "application/json"})).json()
        assert as_json["payload"]["address"] == {"street": "<b>1 Main St</b>"}


async def test_d3_neither_the_page_nor_its_json_shows_a_password(store: Store) -> None:
    account = {"properties": {"user": {"type": "string"}, "key": {"type": "string", "format": "password"}}}
    schema = {"type": "object", "properties": {"account": {"type": "object", **account}}}
    async with served_question(store, schema=schema) as (app, client, id, url):
        await app.resolve(id, {"account": {"user": "ann", "key": "hunter2"}})
        assert "hunter2" not in (await client.get(url)).text
        as_json = (await client.get(url, headers={"Accept": "application/json"})).json()
        assert as_json["payload"] == {"account": {"user": "ann", "key": None}}


async def test_d3_the_page_shows_the_reason_of_a_rejection(store: Store) -> None:
    async with served_question(store, schema=Payment) as (app, client, id, url):
        await app.reject(id, "too <dear>")
        assert "too &lt;dear&gt;" in (await client.get(url)).text


async def test_d3_a_question_that_is_open_shows_no_answer(store: Store) -> None:
    async with served_question(store, schema=Payment) as (_, client, _, url):
        page = await client.get(url)
        assert "given" not in page.text
        assert (await client.get(url, headers={"Accept": "application/json"})).json()["payload"] is None
