"""`proxyless top --web` in a browser, for the channels of another process."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.worlds.browsers import CHROMIUM, visiting
from tests.worlds.watched_meshes import CLUSTER, TARGET
from tools.browser import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]

PROXYLESS = (sys.executable, "-m", "proxyless")


@contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its first line."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            assert started.stdout is not None
            yield started, started.stdout.readline()
        finally:
            started.kill()


def row_of(address: str) -> str:
    """Expression for the row of an endpoint; the beginning of its id is the channel."""
    return f"document.querySelector('[id$=\"/{CLUSTER}/{address}\"]')"


def test_page_shows_channels_endpoints_and_trees_of_the_process(tmp_path: Path) -> None:
    watched = process(sys.executable, "-m", "tests.worlds.watched_meshes")
    with watched as (mesh, line):
        admin, *backends = line.split()
        top = process(*PROXYLESS, "top", admin, "--web", "--target", TARGET, "--interval", "100ms")
        with top as (command, first), visiting(tmp_path, first.split()[4]) as visit:
            page = visit.page
            visit.wait("document.querySelectorAll('.backend output').length === 2")
            for address in backends:
                row = row_of(address)
                visit.wait(f"parseFloat({row}.querySelector('output').textContent) > 0")
                visit.wait(f"parseFloat({row}.querySelector('i').style.width) > 0")
            assert page.locator("#title").inner_text() == "proxyless top"
            assert admin in page.locator("#subtitle").inner_text()
            assert page.locator("#channels tbody th").first.inner_text() == TARGET
            assert "round_robin" in page.locator("#tree").inner_text()
            assert not page.locator("#story").is_visible()
            assert not page.locator("#lost").is_visible()
            assert page.locator("#status").inner_text() == "live service"
            assert visit.wide_elements() == []
            # The process stops its second backend.
            assert mesh.stdin is not None
            mesh.stdin.write("\n")
            mesh.stdin.flush()
            row = row_of(backends[1])
            visit.wait(f"{row}.classList.contains('dead')")
            visit.wait("document.querySelector('#tree li.TRANSIENT_FAILURE') !== null")
            mesh.kill()
            visit.wait("document.querySelector('#status').textContent.startsWith('no answer')")
            command.send_signal(signal.SIGINT)
            assert command.wait() == 0
    # The stream ends with the command, and the browser tries again.
    assert [text for text in visit.errors if "ERR_" not in text] == []
    assert {url for url in visit.requests if not url.startswith("data:")} == {
        visit.address,
        f"{visit.address}events",
    }
