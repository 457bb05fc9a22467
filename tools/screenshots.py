"""Makes the pictures of docs/demo.md from a run of the demo.

python -m tools.screenshots            # Needs Chromium, and takes as long as the demo.

It records the views of a run, and renders some of them as terminal and as page.
"""

import asyncio
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import Browser, ViewportSize, async_playwright
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from proxyless.demo.play import run_demo
from proxyless.demo.stage import Settings
from proxyless.demo.story import STORY
from proxyless.demo.terminal import render
from proxyless.demo.view import RUNNING, View
from proxyless.demo.web import Page
from tools.browser import MISSING, OPTIONS, find_chromium

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE: Final[ViewportSize] = {"width": 1280, "height": 800}
# In characters; the terminal is as high as its content.
COLUMNS, LINES = 128, 27
THEME: Final = TerminalTheme(
    (22, 27, 36),
    (222, 228, 238),
    [
        (22, 27, 36),
        (240, 113, 120),
        (95, 208, 138),
        (240, 184, 74),
        (116, 168, 255),
        (183, 155, 255),
        (76, 201, 221),
        (222, 228, 238),
    ],
)
PAGE_MOMENT: Final = "a route changes to a cluster that is late"
TERMINAL_MOMENT: Final = "zone b is killed as well"

Scheme = Literal["light", "dark"]


@dataclass
class RecordedViews:
    """The last view of each step, and of the run."""

    by_step: dict[str, View] = field(default_factory=dict)
    last: View | None = None

    def show(self, view: View) -> None:
        self.last = view
        for step in view.steps:
            if step.state == RUNNING:
                self.by_step[step.title] = view


def draw_terminal(view: View) -> str:
    """The screen as SVG."""
    console = Console(
        record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True
    )
    console.print(render(view), end="")
    return console.export_svg(title="proxyless demo", theme=THEME)


async def take_screenshot(browser: Browser, view: View, scheme: Scheme) -> bytes:
    """The page as PNG."""
    async with Page() as page:
        page.show(view)
        tab = await browser.new_page(viewport=SIZE, color_scheme=scheme)
        await tab.goto(page.address)
        await tab.wait_for_selector("#tree li")
        # The bars are animated.
        await tab.wait_for_timeout(500)
        picture = await tab.screenshot()
        await tab.close()
    return picture


async def make_pictures(chromium: str) -> dict[str, bytes]:
    """The pictures by file name. Raises AssertionError if the demo failed."""
    views = RecordedViews()
    verdict = await run_demo(Settings(), [views])
    assert verdict.is_good, f"the demo failed: {verdict}"
    assert views.last is not None, "the verdict was shown"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        pictures = {
            "demo-page.png": await take_screenshot(browser, views.by_step[PAGE_MOMENT], "light"),
            "demo-verdict.png": await take_screenshot(browser, views.last, "dark"),
            "demo-terminal.svg": draw_terminal(views.by_step[TERMINAL_MOMENT]).encode(),
        }
        await browser.close()
    return pictures


def main() -> int:
    assert {PAGE_MOMENT, TERMINAL_MOMENT} <= {step.title for step in STORY}, "steps of the story"
    chromium = find_chromium()
    if chromium is None:
        print(f"error: {MISSING}", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    for name, picture in asyncio.run(make_pictures(chromium)).items():
        (IMAGES / name).write_bytes(picture)
        print(f"{IMAGES / name}: {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
