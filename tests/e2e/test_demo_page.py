"""The demo's page in a browser shows all steps."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.worlds.browsers import CHROMIUM, visiting
from tools.browser import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]


# Records the content of the page at short intervals, in the page itself.
WATCH = """
const shown = [];
setInterval(() => {
  if (!document.querySelector("#tree li")) return;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const texts = (selector) => all(selector).map((each) => each.textContent);
  const rows = all(".backend").map((row) => [
    row.id.replace("backend-", ""),
    [parseFloat(row.querySelector("i").style.width), row.querySelector("output").textContent],
  ]);
  shown.push({
    status: document.querySelector("#status").textContent,
    backends: Object.fromEntries(rows),
    labels: texts("#tree .label"),
    failing: texts("#tree li.TRANSIENT_FAILURE"),
    session: texts("#tree .here"),
    step: texts("#story li[aria-current=step] b"),
    config: document.querySelector("#config").textContent,
  });
}, 50);
window.shown = shown;
"""


@dataclass
class Moment:
    """The content of the page at one time."""

    status: str
    # The width of the bar in percent, and the text of the rate.
    backends: dict[str, tuple[float, str]]
    labels: list[str]
    failing: list[str]
    session: list[str]
    step: list[str]
    config: str


@contextmanager
def demo() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = (sys.executable, "-m", "proxyless", "demo", "--web", "--plain", "--speed", "3")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[4]
        finally:
            process.kill()


@pytest.mark.rerun("plays the demo in a browser, with its times")
def test_page_shows_all_steps_of_the_demo(tmp_path: Path) -> None:
    with demo() as (process, address), visiting(tmp_path, address, WATCH) as visit:
        visit.wait("!document.querySelector('#verdict').hidden")
        page = visit.page
        moments = [Moment(**each) for each in page.evaluate("window.shown")]
        expect_calm(moments)
        expect_failover(moments)
        expect_config(moments)
        expect_verdict(page)
        expect_session(page)
        assert visit.wide_elements() == []
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert visit.errors == []
    assert {url for url in visit.requests if not url.startswith("data:")} == {
        address,
        f"{address}events",
    }


def expect_calm(moments: list[Moment]) -> None:
    # A slow machine sends few RPCs, so its bars are short.
    [first, *_] = [each for each in moments if min(widths(each, "a1", "a2")) > 0]
    assert first.status == "running"
    assert first.step == ["everything is well"]
    assert {"xds:///greeter", "greeter-eds", "priority 0", "zone a"} <= set(first.labels)
    assert any(re.fullmatch(r"a1 127\.0\.0\.1:\d+", label) for label in first.labels)
    assert first.session == ["session"]


def expect_failover(moments: list[Moment]) -> None:
    """The bars of the killed zone fall, those of the next one rise, and the tree has the error."""
    killed = [each for each in moments if each.backends["a1"][1] == "killed"]
    assert any(max(widths(each, "a1", "a2")) == 0 for each in killed)
    assert any(min(widths(each, "b1", "b2")) > 0 for each in killed)
    assert any(text.startswith("FAILUREpriority 0") for each in killed for text in each.failing)
    assert any(widths(each, "c1")[0] > 0 for each in killed), "the DNS fallback"


def widths(moment: Moment, *backends: str) -> list[float]:
    return [moment.backends[name][0] for name in backends]


def expect_config(moments: list[Moment]) -> None:
    late = [each for each in moments if "waits forgreeter-v2" in each.config]
    assert late
    assert all(widths(each, "c2") == [0] for each in late[:-1]), "the late cluster gets no RPCs"
    assert any("control plane is away" in each.config for each in moments)


def expect_session(page: Page) -> None:
    """The session has moved, so it is on its backend for a part of the time only."""
    facts = page.locator("#session dd").all_inner_texts()
    names = page.locator("#session dt").all_inner_texts()
    there = dict(zip(names, facts, strict=True))["there for"]
    assert re.fullmatch(r"\d+\.\d s", there)
    assert 0 <= float(there.split()[0]) < float(page.locator("#elapsed").inner_text())


def expect_verdict(page: Page) -> None:
    found = page.locator("#verdict tr").evaluate_all(
        "rows => rows.map((row) => [row.cells[1].textContent, row.cells[2].textContent])"
    )
    rows = dict(found)
    assert rows["story"] == "9 of 9 steps seen"
    assert rows["tear"].startswith("none: ")
    assert page.locator("#status").inner_text() == "all as it should be"
    assert page.locator("#story li.seen").count() == 9
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 27)"
