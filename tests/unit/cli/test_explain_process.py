"""Unit tests of proxyless.cli.explain_process. Tests with servers are in tests/e2e."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import grpc
import pytest

from proxyless.cli import explain_process
from proxyless.cli.admin_client import live_message
from proxyless.cli.explain_process import (
    NoExplanationError,
    ShownExplanation,
    choose_client,
    explain_live,
)
from proxyless.controlplane import LISTENER
from proxyless.observe import ClientStatus, Explanation, ResourceRow
from tests.worlds.rpc_errors import FailedRpc

if TYPE_CHECKING:
    from proxyless.protos import Proto

PARSED = argparse.Namespace(
    live="h:1", method="/a/b", headers=[("k", "v")], target=None, timeout=1.0
)


def client(scope: str, *names: str) -> ClientStatus:
    rows = tuple(ResourceRow(LISTENER, name, "ACKED", "1", "", "", "", b"") for name in names)
    return ClientStatus(scope, "me", "proxyless", rows)


def test_client_of_the_target_is_preferred_to_one_with_its_listener() -> None:
    shared, own = client("", "other", "api"), client("xds:///api")
    assert choose_client([shared, own], "xds:///api", "api") is own
    assert choose_client([client("", "x"), shared], "xds:///api", "api") is shared
    assert choose_client([client("xds:///x", "x")], "xds:///api", "api") is None


def answer(monkeypatch: pytest.MonkeyPatch, *targets: str, **fields: object) -> Proto:
    """The live service answers with an explanation for each target."""
    response = live_message("ExplainResponse", **fields)
    for number, target in enumerate(targets, start=1):
        document = json.dumps({"kind": "rpc", "text": f"goes to {target}"})
        response.explanations.add(
            channel_id=number, target=target, text=f"goes to {target}", json=document
        )
    monkeypatch.setattr(explain_process, "fetch_explanations", lambda *_: response)
    return response


def test_one_channel_has_no_heading_and_several_have(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "xds:///a")
    (only,) = explain_live(PARSED) or []
    assert only.text == "goes to xds:///a"
    assert only.document == {
        "channel": 1,
        "target": "xds:///a",
        "kind": "rpc",
        "text": "goes to xds:///a",
    }
    answer(monkeypatch, "xds:///a", "xds:///b")
    found = explain_live(PARSED) or []
    assert [each.text.split("\n")[0] for each in found] == [
        "channel 1 to xds:///a",
        "channel 2 to xds:///b",
    ]


def test_left_out_channels_are_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "xds:///a", is_truncated=True, silent_loops=1)
    assert explain_live(PARSED)
    assert capsys.readouterr().err.splitlines() == [
        "proxyless explain: 'h:1' has more channels: choose some with --target",
        "proxyless explain: 1 event loop of 'h:1' did not answer in time",
    ]


def test_process_without_channels_or_with_bad_json_has_no_explanation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch)
    with pytest.raises(NoExplanationError, match="has no channel of proxyless"):
        explain_live(PARSED)
    for bad in ("{", "[]"):
        answer(monkeypatch, "xds:///a").explanations[0].json = bad
        with pytest.raises(NoExplanationError, match="not in JSON"):
            explain_live(PARSED)


def test_missing_service_is_none_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise FailedRpc(code)

    monkeypatch.setattr(explain_process, "fetch_explanations", fail)
    code = grpc.StatusCode.UNIMPLEMENTED
    assert explain_live(PARSED) is None
    code = grpc.StatusCode.NOT_FOUND
    with pytest.raises(NoExplanationError, match="NOT_FOUND: some words"):
        explain_live(PARSED)


def test_explanation_that_waits_has_a_problem() -> None:
    assert not ShownExplanation.of(Explanation("rpc", "goes")).has_problem
    assert ShownExplanation.of(Explanation("rpc", "fails", problem="x")).has_problem
    assert ShownExplanation.of(Explanation("rpc", "waits", {"waits": "x"})).has_problem
