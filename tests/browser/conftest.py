"""A browser for tests: the Chromium of the system. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The path of Chromium: HARK_CHROMIUM, or the first one on the PATH."""
    given = os.environ.get("HARK_CHROMIUM")
    found = given or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail("There is no Chromium. `make chromium` as root installs it; or set HARK_CHROMIUM to one.")
    return found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    # Chromium's sandbox does not run as root, and in a container the tests do.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium(), args=options, timeout=60_000)
        try:
            yield launched
        finally:
            await launched.close()
