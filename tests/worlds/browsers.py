"""A page in the installed Chromium."""

from __future__ import annotations

import time  # noqa: TID251 - a browser takes real time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from tools.browser import OPTIONS, find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

CHROMIUM = find_chromium()
# Of a phone.
NARROW = 420
PATIENCE_S = 60.0
WIDE_ELEMENTS = """
(width) => [...document.querySelectorAll("body, body *")]
  .filter((each) => each.getClientRects().length)
  .filter((each) => {
    const {left, right} = each.getBoundingClientRect();
    const isCut = getComputedStyle(each).overflowX !== "visible";
    return left < -1 || right > width + 1 || isCut && each.scrollWidth > each.clientWidth + 1;
  })
  .map((each) => each.outerHTML.slice(0, 200))
"""


@dataclass
class Visit:
    """A page in a browser, and the messages of the browser."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self, script: str) -> None:
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.add_init_script(script)

    def wait(self, expression: str) -> None:
        """Wait until it is true. The policy of the page forbids to evaluate texts inside it."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.page.evaluate(expression):
            assert time.monotonic() < end_s, f"waited {PATIENCE_S:g} s for {expression}"
            self.page.wait_for_timeout(100)

    def wide_elements(self) -> list[str]:
        """The elements that a window of a phone's width would cut or scroll sideways."""
        before = self.page.viewport_size
        assert before is not None
        self.page.set_viewport_size({"width": NARROW, "height": 800})
        found: list[str] = self.page.evaluate(WIDE_ELEMENTS, NARROW)
        self.page.set_viewport_size(before)
        return found


@contextmanager
def visiting(profile: Path, address: str, script: str = "") -> Iterator[Visit]:
    """Open a page; the script runs in it before its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=list(OPTIONS),
            viewport={"width": 1280, "height": 800},
            color_scheme="dark",
        )
        visit = Visit(browser.pages[0], address)
        visit.listen(script)
        visit.page.goto(address)
        yield visit
        browser.close()
