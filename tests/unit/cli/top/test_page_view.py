"""Unit tests of proxyless.cli.top.page_view. Tests in a browser are in tests/e2e."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.cli.top import page_view
from proxyless.cli.top.csds_samples import read_clients
from proxyless.cli.top.page_view import PageHistory
from proxyless.cli.top.samples import with_rates
from proxyless.demo.view import COLUMNS
from tests.unit.cli.top.process_samples import make_sample

if TYPE_CHECKING:
    import pytest


def test_view_has_channels_endpoints_and_trees() -> None:
    document = json.loads(json.dumps(PageHistory("h:1").view(make_sample()).to_json()))
    assert (document["title"], document["subtitle"]) == ("proxyless top", "h:1, pid 7")
    assert (document["status"], document["status_kind"]) == ("live service", "")
    assert [each["target"] for each in document["channels"]] == ["xds:///api", "dns:///b"]
    assert [(each["name"], each["zone"]) for each in document["backends"]] == [
        ("10.0.0.1:80", "web eu/a"),
        ("10.0.0.2:80", "web"),
        ("10.0.0.3:80", "web"),
    ]
    assert [(each["is_running"], each["stopped"]) for each in document["backends"]] == [
        (True, "READY"),
        (False, "FAILURE"),
        (False, "ejected"),
    ]
    assert document["tree"][0]["label"] == "xds:///api"


def test_history_grows_with_samples_and_not_with_errors() -> None:
    history = PageHistory("h:1")
    history.view(make_sample(0, 10.0))
    second = with_rates(make_sample(0, 10.0), make_sample(50, 11.0))
    view = history.view(second).to_json()
    assert view["elapsed_s"] == 1.0
    rates = view["backends"][0]["history"]
    assert len(rates) == COLUMNS
    assert rates[-3:] == [0.0, 0.0, 50.0]
    lost = history.view(second, "no answer").to_json()
    assert lost["backends"][0]["history"] == rates
    assert (lost["status"], lost["status_kind"]) == ("no answer", "bad")


def test_endpoints_are_bounded_and_those_that_are_gone_lose_their_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_view, "ENDPOINTS_MAX", 2)
    history = PageHistory("h:1")
    view = history.view(make_sample()).to_json()
    assert len(view["backends"]) == 2
    assert view["notes"] == ["1 more endpoint"]
    empty = history.view(replace(make_sample(), channels=())).to_json()
    assert empty["backends"] == []
    assert not history._rates


def test_sample_of_csds_has_no_figures() -> None:
    view = PageHistory("h:1").view(read_clients([], 0.0)).to_json()
    assert (view["rate"], view["sent"], view["failed"]) == ("-", "–", "–")
    assert view["notes"]
