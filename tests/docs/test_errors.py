"""docs/errors.md has exactly the texts that the cases produce.

Log and NACK have the same texts.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.docs.error_cases import CASES, NACKS, NODE, PER_RPC, REASONS, Outcome, run_case
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from tests.docs.error_cases import Case

# Texts from before the bootstrap is read, or without a control plane: they have no node id.
NAMELESS = {"bootstrap_is_missing", "dns_target_is_unknown"}


@pytest.fixture(autouse=True)
def _no_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)


@cache
def outcome_of(case: Case) -> Outcome:
    return run_case(case)


@cache
def texts_of_page() -> frozenset[str]:
    """The texts of the page; one may span several lines."""
    page = (ROOT / "docs" / "errors.md").read_text()
    found = re.findall(r"^- `([^`]+)`\\$", page, re.MULTILINE)
    return frozenset(" ".join(each.split()) for each in found)


@pytest.mark.parametrize("case", [*CASES, *PER_RPC], ids=lambda case: case.__name__)
def test_error_text_is_on_the_page(case: Case) -> None:
    assert outcome_of(case).text in texts_of_page()


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.__name__)
def test_reasons_are_on_the_page(reason: object) -> None:
    assert callable(reason)
    assert reason() in texts_of_page()


def test_page_has_no_other_texts() -> None:
    made = {outcome_of(case).text for case in (*CASES, *PER_RPC)}
    assert texts_of_page() == made | {reason() for reason in REASONS}


@pytest.mark.parametrize("case", [*CASES, *PER_RPC], ids=lambda case: case.__name__)
def test_text_is_one_line_and_ends_with_the_node_id(case: Case) -> None:
    text = outcome_of(case).text
    assert text.isprintable()
    if case.__name__ not in NAMELESS:
        assert text.endswith(f' (node id "{NODE}")')
        assert text.count("node id") == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_log_has_the_text_of_the_rpc(case: Case) -> None:
    found = outcome_of(case)
    assert any(line.endswith(found.text) for line in found.logged)
    # At most twice: by the module that finds the error, and by the one whose RPCs fail.
    assert max(found.logged.count(line) for line in found.logged) <= 2


@pytest.mark.parametrize("case", PER_RPC, ids=lambda case: case.__name__)
def test_error_of_one_rpc_is_not_logged(case: Case) -> None:
    found = outcome_of(case)
    assert not any(found.text in line for line in found.logged)


@pytest.mark.parametrize("case", NACKS, ids=lambda case: case.__name__)
def test_nack_log_and_rpc_have_the_same_text(case: Case) -> None:
    found = outcome_of(case)
    assert found.nacks == (found.text,)
    assert found.text in found.logged
