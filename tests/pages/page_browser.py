"""A browser for the tests of pages: Debian's Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS, HEIGHT = (1280, 390), 900


def chromium() -> str:
    """The path of the browser; the test is skipped, with the reason, where there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = (
        os.environ.get("WSOPT_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if not found:
        pytest.skip("there is no chromium: apt-get install chromium, or name one by WSOPT_TEST_CHROMIUM")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser, until the context ends."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page that is open, with all that its console said, its errors, and the requests that it made."""

    page: Page
    told: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def check(self) -> None:
        """The page has said nothing and asked for nothing but itself, and nothing of it is beyond its width."""
        assert self.told == []
        assert self.requests == [self.page.url.partition("#")[0]]
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"the page is {wide} pixels wider than the window"


def opened(browser: Browser, path: Path, width: int = 1280) -> Opened:
    """Open a file, and wait until its pictures are drawn."""
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme="light")
    one = Opened(page)
    page.on("console", lambda message: one.told.append(message.text))
    page.on("pageerror", lambda error: one.told.append(str(error)))
    page.on("request", lambda request: one.requests.append(request.url))
    page.goto(path.as_uri())
    page.locator(".chart svg").first.wait_for(state="attached")
    return one


def until(page: Page, expression: str) -> None:
    """Wait until an expression holds. Playwright's own wait would evaluate a string in the page, whose policy lets it
    not.
    """
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"it does not come to hold that {expression}")
