"""Runs one page in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT, find_pages, parse_page

# On a busy machine a page takes minutes instead of ten seconds.
PAGE_TIMEOUT_S = 180


def pages_with_blocks() -> list[str]:
    return [page for page in find_pages() if parse_page(page, (ROOT / page).read_text())]


def is_howto(page: str) -> bool:
    return page.startswith("docs/howto/")


def check_page(page: str) -> None:
    """Fail with the shown and the actual output if they differ."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", page],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PAGE_TIMEOUT_S - 10,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
