"""D3: a person answers, in a real browser, without JavaScript: light and dark, on a desktop and on a phone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from hark import Hark
from tests.support.http import app_on, serving
from tests.support.questions import Asker, ask
from tests.support.stores import Store

DESKTOP, PHONE = (1280, 900), (360, 740)
_TIMEOUT = 60_000  # milliseconds, for what takes one
expect.set_options(timeout=_TIMEOUT)


class Method(Enum):
    TRANSFER = "bank_transfer"
    CARD = "card"


@dataclass
class Address:
    street: str
    zip: str | None = None


@dataclass
class Payment:
    """How shall we pay?"""

    approve: bool
    amount: int
    method: Method
    pay_on: date
    address: Address
    tags: list[str] = field(default_factory=list)
    country: str = "DE"
    comment: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


PAY: dict[str, Any] = {
    "title": "Pay invoice 2026-117 to Northwind Paper?",
    "description": "1,240.00 for the spring catalogue.\nThe goods arrived complete.",
    "schema": Payment,
    "timeout": 90_000,
}


@asynccontextmanager
async def page_of(
    browser: Browser, store: Store, question: dict[str, Any], *, size: tuple[int, int] = DESKTOP, scheme: Any = "light"
) -> AsyncIterator[tuple[Hark, str, Page]]:
    """Open the page of a question. At the end, check that it fetched nothing from elsewhere and logged no problem."""
    app = app_on(store)
    app.register(Asker)
    width, height = size
    async with serving(app, worker=False) as client:
        id = await ask(app, store, **question)
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=False,
            has_touch=size is PHONE,
            reduced_motion="reduce",  # contrast is not measured in the middle of a transition
        )
        page = await context.new_page()
        page.set_default_timeout(_TIMEOUT)
        requested: list[str] = []
        logged: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: logged.append(message.text))
        await page.goto((await app.awakeable(id)).url)
        yield app, id, page
        await context.close()
        origin = str(client.base_url).rstrip("/")
        assert all(url.startswith(origin) for url in requested)
        assert [text for text in logged if "status of 4" not in text] == []  # Chromium logs a 409


async def fill_in(page: Page) -> None:
    await page.get_by_role("radio", name="Yes").check()
    await page.get_by_label("Amount").fill("1240")
    await page.get_by_role("radio", name="Bank transfer").check()
    await page.get_by_label("Pay on").fill("2026-12-01")
    await page.get_by_label("Street").fill("1 Main St")
    await page.get_by_label("Tags").fill("paper\nspring")
    await page.get_by_label("Comment").fill("Thanks,\nAnn")
    await page.get_by_label("Extra").fill('{"po": 7}')
    await page.get_by_label("Your name").fill("Ann")


async def test_d3_a_person_fills_in_the_form_and_is_thanked(browser: Browser, store: Store) -> None:
    async with page_of(browser, store, PAY) as (app, id, page):
        await expect(page.get_by_role("heading", level=1)).to_have_text(PAY["title"])
        await expect(page.get_by_text("How shall we pay?")).to_be_visible()
        await fill_in(page)
        await page.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        given = page.get_by_label("The answer")
        for text in ("1240", "Bank transfer", "2026-12-01", "1 Main St", "spring", "Thanks,", '"po": 7'):
            await expect(given.get_by_text(text)).to_be_visible()
        settled = await app.awakeable(id)
        assert settled.answered_by == "Ann"
        assert settled.payload == {
            "approve": True, "amount": 1240, "method": "bank_transfer", "pay_on": "2026-12-01",
            "address": {"street": "1 Main St"}, "tags": ["paper", "spring"], "country": "DE",
            "comment": "Thanks,\nAnn", "extra": {"po": 7},
        }  # fmt: skip
        await page.reload()
        await page.go_back()
        await expect(page.get_by_text("answered by Ann")).to_be_visible()


async def test_d3_problems_are_shown_at_their_fields_and_what_was_typed_is_kept(browser: Browser, store: Store) -> None:
    async with page_of(browser, store, PAY) as (app, id, page):
        await fill_in(page)
        await page.get_by_label("Extra").fill("{nonsense")
        await page.get_by_role("button", name="Send answer").click()
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("Not sent yet")
        await expect(page.get_by_label("Extra")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("Extra")).to_have_value("{nonsense")
        await expect(page.get_by_label("Comment")).to_have_value("Thanks,\nAnn")
        await expect(page.get_by_role("radio", name="Yes")).to_be_checked()
        await alert.get_by_role("link", name="Extra").click()
        await page.get_by_label("Extra").fill("{}")
        await page.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        assert (await app.awakeable(id)).payload["extra"] == {}


async def test_d3_the_browser_asks_for_required_fields(browser: Browser, sqlite_store: Store) -> None:
    async with page_of(browser, sqlite_store, PAY) as (app, id, page):
        await page.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_role("alert")).to_have_count(0)
        assert (await app.awakeable(id)).status == "PENDING"
        await page.get_by_text("Reject instead").click()  # needs no fields
        await page.get_by_label("Reason").fill("not ours")
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_text("This question was rejected on")).to_be_visible()
        assert (await app.awakeable(id)).error == "not ours"


async def test_d3_the_keyboard_is_enough(browser: Browser, sqlite_store: Store) -> None:
    question = {"title": "Deploy?", "schema": {"type": "object", "required": ["go"], "properties": {
        "go": {"enum": ["now", "tonight", "never"]}, "note": {"type": "string"}}}}  # fmt: skip
    async with page_of(browser, sqlite_store, question) as (app, id, page):
        press = page.keyboard.press
        await press("Tab")
        await press("Space")
        await press("ArrowDown")  # from "now" to "tonight"
        await press("Tab")
        await page.keyboard.type("after six")
        await press("Tab")
        await page.keyboard.type("Bob")
        await press("Tab")
        await press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        settled = await app.awakeable(id)
        assert (settled.payload, settled.answered_by) == ({"go": "tonight", "note": "after six"}, "Bob")


async def test_fault_42_of_two_people_who_answer_at_the_same_time_one_wins_and_the_other_sees_who(
    browser: Browser, store: Store
) -> None:
    async with page_of(browser, store, {"title": "Deploy?", "assignees": ["Ann", "Bob"]}) as (app, id, ann):
        bob = await (await browser.new_context(java_script_enabled=False)).new_page()
        await bob.goto(ann.url)
        for page, name in ((ann, "Ann"), (bob, "Bob")):
            await page.get_by_label("Your answer").fill(f"from {name}")
            await page.get_by_label("You are").select_option(name)
        await asyncio.gather(*(page.get_by_role("button", name="Answer").click() for page in (ann, bob)))
        for page in (ann, bob):
            await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Thank you|Answered"))
        winner = (await app.awakeable(id)).answered_by
        headings = {await page.get_by_role("heading", level=1).inner_text() for page in (ann, bob)}
        assert headings == {"Thank you", "Answered"}
        loser = bob if winner == "Ann" else ann
        await expect(loser.get_by_text(f"answered by {winner} on")).to_be_visible()
        await expect(loser.get_by_text("Only the first answer counts")).to_be_visible()
        await bob.context.close()


async def test_d3_clicking_twice_answers_once(browser: Browser, sqlite_store: Store) -> None:
    async with page_of(browser, sqlite_store, {}) as (app, id, page):
        await page.get_by_role("button", name="Answer").dblclick()
        await expect(page.get_by_text("This question was answered")).to_be_visible()
        assert (await app.awakeable(id)).status == "RESOLVED"
        told = [event.data["status"] for event in await app.events("asker") if event.type == "awakeable"]
        assert told == ["PENDING", "RESOLVED"]


# The lowest contrast between text and its background on the page, as the browser paints it, and its element.
_COLOURS = """
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
"""
CONTRAST = (
    f"() => {{{_COLOURS}"
    """
    let lowest = [99, ""];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const element = walk.currentNode.parentElement;
        if (!walk.currentNode.textContent.trim() || !element.checkVisibility()) continue;
        const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < lowest[0]) lowest = [ratio, element.outerHTML.slice(0, 120)];
    }
    return lowest;
}"""
)
# The lowest contrast between the border of a field and what is on either side of it (WCAG 1.4.11).
BORDERS = (
    f"() => {{{_COLOURS}"
    """
    let lowest = [99, ""];
    const fields = "input:not([type=hidden], [type=radio], [type=checkbox]), select, textarea, .options label";
    for (const one of document.querySelectorAll(fields)) {
        if (!one.checkVisibility()) continue;
        const style = getComputedStyle(one);
        for (const around of [behind(one), behind(one.parentElement)]) {
            const [a, b] = [light(parts(style.borderTopColor)), light(around)].sort((a, b) => b - a);
            const ratio = parseFloat(style.borderTopWidth) ? (a + 0.05) / (b + 0.05) : 0;
            if (ratio < lowest[0]) lowest = [ratio, one.outerHTML.slice(0, 120)];
        }
    }
    return lowest;
}"""
)
UNNAMED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
    .filter(one => !one.labels.length || !one.labels[0].textContent.trim()).map(one => one.outerHTML)"""
SMALL = """() => [...document.querySelectorAll("button, select, textarea, .options label, input:not([type=hidden])")]
    .filter(one => !one.closest(".options label") || one.matches("label"))
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 44).map(one => one.outerHTML)"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_d3_the_page_is_accessible(
    browser: Browser, sqlite_store: Store, scheme: str, size: tuple[int, int]
) -> None:
    """The contrast of WCAG, a label for every field, targets of 44 pixels, no horizontal scrolling on a phone."""
    async with page_of(browser, sqlite_store, PAY, scheme=scheme, size=size) as (app, id, page):
        paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(int(n) for n in paper[4:-1].split(",")) < 60) == (scheme == "dark")
        await page.get_by_text("Reject instead").click()
        for state in ("asked", "refused", "settled"):
            if state == "refused":
                await fill_in(page)
                await page.get_by_label("Extra").fill("{nonsense")
                await page.get_by_role("button", name="Send answer").click()
                await expect(page.get_by_role("alert")).to_be_visible()
            if state == "settled":
                await app.reject(id)
                await page.reload()
            for button in [None, *await page.get_by_role("button").all()]:
                if button is not None:
                    await button.hover()
                ratio, element = await page.evaluate(CONTRAST)
                assert ratio >= 4.5, (state, ratio, element)
            ratio, element = await page.evaluate(BORDERS)
            assert ratio >= 3, (state, ratio, element)
            assert await page.evaluate(UNNAMED) == []
            assert await page.evaluate(SMALL) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await page.evaluate("document.documentElement.lang") == "en"
            assert await page.evaluate("document.querySelectorAll('h1').length") == 1
