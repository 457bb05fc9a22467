"""Does the demo's page show the story, in a real browser?"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tools.browser import MISSING, OPTIONS, find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

CHROMIUM = find_chromium()
PATIENCE_S = 60.0

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
    pytest.mark.timeout(180),
]


@dataclass
class Visit:
    """A page that shows a demo, and what the browser had to say about it."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def width_of(self, backend: str) -> float:
        """Of its bar, in percent."""
        style = self.page.locator(f"#backend-{backend} .bar i").get_attribute("style") or ""
        found = re.search(r"width: ([0-9.]+)%", style)
        return float(found[1]) if found else 0.0

    def wait(self, expression: str) -> None:
        """Until it is true. Asked from here: the page's own policy forbids to evaluate texts."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.page.evaluate(expression):
            assert time.monotonic() < end_s, f"waited {PATIENCE_S:g} s for {expression}"
            self.page.wait_for_timeout(20)


@contextmanager
def visiting(profile: Path, address: str) -> Iterator[Visit]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=list(OPTIONS),
            viewport={"width": 1280, "height": 800},
            color_scheme="dark",
        )
        visit = Visit(browser.pages[0], address)
        visit.listen()
        visit.page.goto(address)
        yield visit
        browser.close()


@contextmanager
def demo() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = (sys.executable, "-m", "proxyless.cli", "demo", "--web", "--plain", "--speed", "3")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix("the page is at ").strip()
        finally:
            process.kill()


def test_the_page_shows_the_story_to_its_end(tmp_path: Path) -> None:
    with demo() as (process, address), visiting(tmp_path, address) as visit:
        page = visit.page
        visit.wait("parseFloat(document.querySelector('#backend-a1 .bar i')?.style.width) > 20")
        assert page.title() == "proxyless demo"
        assert page.locator("#status").inner_text() == "running"
        expect_tree(visit, "xds:///greeter", "greeter-eds", "priority 0", "zone a")
        assert page.locator("#tree .here").inner_text() == "session"
        assert page.locator("#story li[aria-current=step]").count() == 1

        visit.wait("document.querySelector('#backend-a1 output').textContent === 'killed'")
        visit.wait("parseFloat(document.querySelector('#backend-b1 .bar i').style.width) > 20")
        visit.wait("parseFloat(document.querySelector('#backend-a1 .bar i').style.width) === 0")
        assert visit.width_of("b2") > 20
        failing = page.locator("#tree li.TRANSIENT_FAILURE", has_text="priority 0")
        assert "FAILURE" in failing.first.inner_text()

        visit.wait("document.querySelector('#config').textContent.includes('greeter-v2')")
        visit.wait("document.querySelector('#config').textContent.includes('is away')")

        visit.wait("!document.querySelector('#verdict').hidden")
        rows = dict(
            page.locator("#verdict tr").evaluate_all(
                "rows => rows.map((row) => [row.cells[1].textContent, row.cells[2].textContent])"
            )
        )
        assert rows["story"] == "9 of 9 steps seen"
        assert rows["tear"].startswith("none: ")
        assert page.locator("#status").inner_text() == "all as it should be"
        assert page.locator("#story li.seen").count() == 9
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 27)"

        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert visit.errors == []
    assert {url for url in visit.requests if not url.startswith("data:")} == {
        address,
        f"{address}events",
    }


def expect_tree(visit: Visit, *labels: str) -> None:
    shown = visit.page.locator("#tree .label").all_inner_texts()
    assert set(labels) <= set(shown)
    assert any(re.fullmatch(r"a1 127\.0\.0\.1:\d+", label) for label in shown)
