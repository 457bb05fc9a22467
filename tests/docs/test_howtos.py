"""Blocks of the how-tos, in a file of their own, so that two processes share the pages."""

from __future__ import annotations

import pytest

from tests.docs.page_process import PAGE_TIMEOUT_S, check_page, is_howto, pages_with_blocks


@pytest.mark.rerun("runs the page's servers and commands on real time")
@pytest.mark.timeout(PAGE_TIMEOUT_S)
@pytest.mark.parametrize("page", [page for page in pages_with_blocks() if is_howto(page)])
def test_howto_runs_as_shown(page: str) -> None:
    check_page(page)
