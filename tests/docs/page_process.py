"""One page in a process of its own, as a test has it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT, find_pages, parse_page

# A busy machine takes minutes where a quiet one takes ten seconds.
PAGE_TIMEOUT_S = 180


def pages_with_blocks() -> list[str]:
    return [page for page in find_pages() if parse_page(page, (ROOT / page).read_text())]


def is_howto(page: str) -> bool:
    return page.startswith("docs/howto/")


def check_page(page: str) -> None:
    """Fails with what the page shows and what is so instead."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", page],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PAGE_TIMEOUT_S - 10,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
