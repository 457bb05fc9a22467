"""Makes the pictures of docs/demo.md and docs/howto/command-line.md from a run of the demo.

python -m tools.screenshots            # Needs Chromium, and takes as long as the demo.

It records the views of a run, and renders some of them as terminal and as page. The pictures of
`top` are of the client of the demo, through its live service, at the same moments.
"""

import asyncio
import io
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import grpc.aio
from playwright.async_api import Browser, ViewportSize, async_playwright
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

from proxyless import admin
from proxyless.cli.top.navigation import Navigation
from proxyless.cli.top.page_view import PageHistory, ProcessOnPage
from proxyless.cli.top.samples import Sample, with_rates
from proxyless.cli.top.screen import render as render_top
from proxyless.cli.top.sources import ProcessSource
from proxyless.demo.mesh import EDS
from proxyless.demo.play import run_demo
from proxyless.demo.stage import TARGET, Settings
from proxyless.demo.story import STORY
from proxyless.demo.terminal import render
from proxyless.demo.view import RUNNING, View
from proxyless.demo.web import Page, ShownOnPage
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
TOP_MOMENT: Final = "zone a is killed"
# Between two samples of `top`.
INTERVAL_S: Final = 0.5

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


class RecordedSamples:
    """The samples that `top` shows of this process, by the step of the demo."""

    def __init__(self, views: RecordedViews) -> None:
        self._views = views
        self.samples: dict[str, Sample] = {}
        self.pages: dict[str, ProcessOnPage] = {}

    async def record(self, address: str) -> None:
        """Take samples until it is cancelled."""
        sample, history = None, PageHistory(address)
        async for newest in ProcessSource(address, INTERVAL_S).samples():
            sample = with_rates(sample, newest)
            page = history.view(sample)
            if self._views.by_step:
                step = next(reversed(self._views.by_step))
                self.samples[step], self.pages[step] = sample, page


def draw_terminal(screen: RenderableType, title: str) -> bytes:
    """The screen as SVG."""
    console = Console(
        record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True
    )
    console.print(screen, end="")
    return console.export_svg(title=title, theme=THEME).encode()


async def take_screenshot(browser: Browser, view: ShownOnPage, scheme: Scheme) -> bytes:
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


def draw_top(sample: Sample, address: str) -> bytes:
    """The endpoints of a cluster, sorted by their rates."""
    (key,) = (channel.key for channel in sample.channels if channel.target == TARGET)
    place = Navigation(key, EDS, sort="rpc/s")
    screen = render_top(sample, place, address, "", LINES)
    return draw_terminal(screen, f"proxyless top {address}")


async def make_pictures(chromium: str) -> dict[str, bytes]:
    """The pictures by file name. Raises AssertionError if the demo failed."""
    views = RecordedViews()
    top = RecordedSamples(views)
    server = grpc.aio.server()
    admin.add_servicers(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    recording = asyncio.ensure_future(top.record(address))
    verdict = await run_demo(Settings(), [views])
    recording.cancel()
    with suppress(asyncio.CancelledError):
        await recording
    await server.stop(None)
    assert verdict.is_good, f"the demo failed: {verdict}"
    assert views.last is not None, "the verdict was shown"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        pictures = {
            "demo-page.png": await take_screenshot(browser, views.by_step[PAGE_MOMENT], "light"),
            "demo-verdict.png": await take_screenshot(browser, views.last, "dark"),
            "demo-terminal.svg": draw_terminal(
                render(views.by_step[TERMINAL_MOMENT]), "proxyless demo"
            ),
            "top-page.png": await take_screenshot(browser, top.pages[TOP_MOMENT], "light"),
            "top-terminal.svg": draw_top(top.samples[TOP_MOMENT], address),
        }
        await browser.close()
    return pictures


def main() -> int:
    assert {PAGE_MOMENT, TERMINAL_MOMENT, TOP_MOMENT} <= {step.title for step in STORY}, (
        "steps of the story"
    )
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
