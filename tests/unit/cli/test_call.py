"""Unit tests of proxyless.cli.call without servers. Others are in tests/e2e."""

from __future__ import annotations

import argparse
import io
import sys
from typing import TYPE_CHECKING

import pytest

from proxyless import CallRoute
from proxyless.cli import main
from proxyless.cli.call import _read_request, describe_route, to_call_metadata

if TYPE_CHECKING:
    from pathlib import Path


def parsed(**given: object) -> argparse.Namespace:
    fields = {"data": None, "data_file": None, "data_hex": None, "data_base64": None}
    return argparse.Namespace(**{**fields, **given})


def test_request_is_read_from_where_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "request"
    path.write_text('{"a": 1}')
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed"))
    assert _read_request(parsed()) == "{}"
    assert _read_request(parsed(data="-")) == "typed"
    assert _read_request(parsed(data=f"@{path}")) == '{"a": 1}'
    assert _read_request(parsed(data_file=path)) == b'{"a": 1}'
    assert _read_request(parsed(data_hex="0a 01")) == b"\x0a\x01"
    assert _read_request(parsed(data_base64="AQI=")) == b"\1\2"


@pytest.mark.parametrize("given", [{"data_hex": "x"}, {"data_base64": "?"}])
def test_request_that_is_not_in_its_encoding_is_an_error(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="request is not valid"):
        _read_request(parsed(**given))


def test_binary_metadata_is_given_in_base64() -> None:
    assert to_call_metadata([("a", "b"), ("c-bin", "AQI=")]) == (("a", "b"), ("c-bin", b"\1\2"))
    with pytest.raises(ValueError, match="header 'c-bin' is not in base64"):
        to_call_metadata([("c-bin", "?")])


@pytest.mark.parametrize(
    ("route", "text"),
    [
        (CallRoute(), "went to no backend"),
        (CallRoute("a:1", attempts=1), "went to a:1"),
        (CallRoute("a:1", "web", attempts=1), 'went to a:1, cluster "web"'),
        (CallRoute("c:1", "web", attempts=3), 'went to c:1, cluster "web", with attempt 3'),
    ],
)
def test_route_names_backend_cluster_and_attempt(route: CallRoute, text: str) -> None:
    assert describe_route(route) == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["dns:///x:1", "a/b", "--data-file", "/nowhere"],
            "/nowhere: cannot be read: No such file",
        ),
        (["dns:///x:1", "a/b", "--protoset", "/nowhere"], "/nowhere: cannot be read: No such file"),
        (
            ["dns:///x:1", "a/b", "--data-hex", "", "--tls", "--cacert", "/nowhere"],
            "/nowhere: cannot be read: No such file",
        ),
        (["dns:///x:1", "a/b", "--data-hex", "", "-H", "c-bin: ?"], "is not in base64"),
    ],
)
def test_call_that_cannot_be_sent_exits_with_1(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("proxyless call: ")
    assert text in captured.err
