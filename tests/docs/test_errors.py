"""Is docs/errors.md true: is every text on it one that we produce, and every one we produce on it?

And is each of them what the log says, and what the control plane is told?
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.docs.error_cases import NODE, PER_RPC, REASONS, REFUSALS, STORIES, Outcome, play
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from tests.docs.error_cases import Story

# Those that come before the bootstrap is read, or have nothing to do with a control plane.
NAMELESS = {"bootstrap_is_missing", "dns_target_is_unknown"}


@pytest.fixture(autouse=True)
def _no_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)


@cache
def outcome_of(story: Story) -> Outcome:
    return play(story)


@cache
def texts_of_page() -> frozenset[str]:
    """A text may go on in the next line of the page."""
    page = (ROOT / "docs" / "errors.md").read_text()
    found = re.findall(r"^- `([^`]+)`\\$", page, re.MULTILINE)
    return frozenset(" ".join(each.split()) for each in found)


@pytest.mark.parametrize("story", [*STORIES, *PER_RPC], ids=lambda story: story.__name__)
def test_what_happens_is_on_the_page(story: Story) -> None:
    assert outcome_of(story).text in texts_of_page()


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.__name__)
def test_reasons_are_on_the_page(reason: object) -> None:
    assert callable(reason)
    assert reason() in texts_of_page()


def test_what_is_on_the_page_happens() -> None:
    made = {outcome_of(story).text for story in (*STORIES, *PER_RPC)}
    assert texts_of_page() == made | {reason() for reason in REASONS}


@pytest.mark.parametrize("story", [*STORIES, *PER_RPC], ids=lambda story: story.__name__)
def test_a_text_is_one_line_with_the_node_id_once_and_last(story: Story) -> None:
    text = outcome_of(story).text
    assert text.isprintable()
    if story.__name__ not in NAMELESS:
        assert text.endswith(f' (node id "{NODE}")')
        assert text.count("node id") == 1


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_log_has_the_words_of_the_rpc(story: Story) -> None:
    found = outcome_of(story)
    assert any(line.endswith(found.text) for line in found.logged)
    # Nothing floods: each line comes once from whoever finds it and once from whom it concerns.
    assert max(found.logged.count(line) for line in found.logged) <= 2


@pytest.mark.parametrize("story", PER_RPC, ids=lambda story: story.__name__)
def test_what_is_about_one_rpc_is_not_logged(story: Story) -> None:
    found = outcome_of(story)
    assert not any(found.text in line for line in found.logged)


@pytest.mark.parametrize("story", REFUSALS, ids=lambda story: story.__name__)
def test_a_refusal_has_the_same_words_for_control_plane_log_and_rpc(story: Story) -> None:
    found = outcome_of(story)
    assert found.nacks == (found.text,)
    assert found.text in found.logged
