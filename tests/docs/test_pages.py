"""Every block of every page runs, and has the shown output.

Blocks that are not run are in `listed`, with the reason. To run one page:
`python -m tests.docs.run_page docs/tutorial.md`.
"""

from __future__ import annotations

import re

import pytest

from proxyless.cli import COMMANDS
from proxyless.front import options
from tests.docs.commands import makefile_targets
from tests.docs.listed import CHECKED, NOT_RUN, is_listed
from tests.docs.page_process import PAGE_TIMEOUT_S, check_page, is_howto, pages_with_blocks
from tests.docs.pages import ROOT, find_pages, parse_commands, parse_page
from tools.api_reference import stale_pages

PAGES = {page: parse_page(page, (ROOT / page).read_text()) for page in find_pages()}


@pytest.mark.rerun("runs the page's servers and commands on real time")
@pytest.mark.timeout(PAGE_TIMEOUT_S)
@pytest.mark.parametrize("page", [page for page in pages_with_blocks() if not is_howto(page)])
def test_page_runs_as_shown(page: str) -> None:
    check_page(page)


def test_every_line_of_the_list_is_used() -> None:
    shown = [block for blocks in PAGES.values() for block in blocks]
    for key in NOT_RUN:
        assert any(is_listed(block, key) for block in shown), key
    commands = [
        command.text
        for block in shown
        if block.language in {"sh", "console"} and block.kind != "interrupt"
        for command in parse_commands(block)
    ]
    for checked in CHECKED:
        assert any(map(checked.pattern.match, commands)), checked


def test_make_targets_in_sentences_exist() -> None:
    text = "\n".join((ROOT / page).read_text() for page in PAGES)
    named = set(re.findall(r"`make (?:-\w )?([a-z][a-z0-9-]*)", text))
    assert {"demo", "test"} <= named <= makefile_targets()
    commands = set(re.findall(r"`proxyless ([a-z]+)", text))
    assert {"serve", "lint"} <= commands <= set(COMMANDS)


def test_table_of_channel_options_has_every_option_that_is_known() -> None:
    page = (ROOT / "docs/howto/migrate-from-grpcio.md").read_text()
    table = page.partition("## Channel options\n")[2].partition("\n## ")[0]
    listed = {
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([\w.]+)`", row.split("|")[1])
    }
    assert listed == options.known_names()


def test_api_reference_matches_the_sources() -> None:
    assert stale_pages() == [], "run 'make docs'"


@pytest.mark.parametrize("command", ["check", "test", "demo", "conformance", "sim", "env"])
def test_long_command_is_run_by_ci(command: str) -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(rf"^step (run_tests )?make {command}\b", script, re.MULTILINE)
