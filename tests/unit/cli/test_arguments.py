"""Unit tests of proxyless.cli.arguments."""

from __future__ import annotations

import argparse

import pytest

from proxyless.cli import main
from proxyless.cli.arguments import (
    parse_address,
    parse_header,
    parse_method,
    parse_number,
    parse_port,
    parse_timeout,
    refuse_options,
)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:0", "host:65535", "[::1]:80", "dns:///host:80", "unix:/run/x", "unix:99999"]
)
def test_address_is_returned_unchanged(text: str) -> None:
    assert parse_address(text) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "host", "host:", "host:http", "127.0.0.1:65536", "[::1]:99999", "h:" + "9" * 5000],
)
def test_address_without_a_valid_port_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="wanted"):
        parse_address(text)


def test_method_needs_a_service() -> None:
    assert parse_method("/pkg.Service/Method") == "/pkg.Service/Method"
    assert parse_method("pkg.Service/Method") == "/pkg.Service/Method"
    for text in ("", "/", "/pkg.Service", "pkg.Service.Method", "/pkg.Service/", "//x", "/a/b c"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"wanted /package\.Service/Method"):
            parse_method(text)


def test_port_is_rejected_out_of_range() -> None:
    assert parse_port("65535") == 65_535
    for text in ("65536", "-1", "x", "", "1.5", "9" * 5000):
        with pytest.raises(argparse.ArgumentTypeError, match="wanted a port from 0 to 65535"):
            parse_port(text)


def test_timeout_is_rejected_out_of_range() -> None:
    assert [parse_timeout(text) for text in ("0.5", "2s", "500ms", "1m30s")] == [0.5, 2, 0.5, 90]
    for text in ("0", "-1", "nan", "inf", "1e9", "0s", "2 weeks", "25h"):
        with pytest.raises(argparse.ArgumentTypeError, match="wanted a time such as 2s or 500ms"):
            parse_timeout(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ring: beta", ("ring", "beta")),
        ("ring=beta", ("ring", "beta")),
        ("ring= beta ", ("ring", " beta ")),
        ("authorization: Bearer a=b", ("authorization", "Bearer a=b")),
        ("where=http://x", ("where", "http://x")),
        ("empty:", ("empty", "")),
    ],
)
def test_header_is_split_at_its_first_colon_or_equals_sign(
    text: str, wanted: tuple[str, str]
) -> None:
    assert parse_header(text) == wanted


@pytest.mark.parametrize("text", ["ring", "", ": x", "=x", "a b: c", "te: x", "a=\n", "a: \x01"])
def test_header_is_rejected_without_a_valid_key_and_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_header(text)


def test_option_without_effect_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--web-port", type=int, default=0)
    for given in ([], ["--web-port", "0"]):
        refuse_options(
            parser.parse_args(given, argparse.Namespace(parser=parser)), ["web_port"], "x"
        )
    parsed = parser.parse_args(["--web-port", "1"], argparse.Namespace(parser=parser))
    with pytest.raises(SystemExit) as ended:
        refuse_options(parsed, ["web_port"], "without --web")
    assert ended.value.code == 2
    assert "argument --web-port: has no effect without --web" in capsys.readouterr().err


def test_number_is_rejected_with_its_text() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="got 'x', wanted a number"):
        parse_number("x")


@pytest.mark.parametrize(
    "words",
    [
        ["serve", ".", "--listen", "127.0.0.1:99999"],
        ["status", "127.0.0.1:99999"],
        ["status", "127.0.0.1"],
        ["explain", "/s", "--config", ".", "--target", "xds:///a"],
        ["status", "127.0.0.1:1", "--timeout", "nan"],
        ["explain", "/s/m", "--status", "127.0.0.1:99999", "--target", "xds:///a"],
        ["explain", "/s/m", "--config", ".", "--target", "xds:///a", "-H", "a b=c"],
        ["explain", "/s/m", "--config", ".", "--target", "xds:///a", "-H", "a=\n"],
        ["demo", "--web", "--port", "99999"],
        ["demo", "--speed", "x"],
        ["demo", "--port", "8080"],
        ["status", "127.0.0.1:1", "--contents"],
        ["explain", "/s/m", "--config", ".", "--target", "xds:///a", "--tls"],
        ["explain", "/s/m", "--config", ".", "--target", "xds:///a", "--timeout", "2s"],
        ["explain", "/s/m", "--target", "xds:///a", "--cacert", "x"],
        ["explain", "/s/m", "--target", "xds:///a", "--tls", "--cert", "x"],
        ["explain", "/s/m", "--target", "dns:///a", "--bootstrap", "x"],
        ["call", "xds:///a", "/s/m", "--data-hex", "", "--protoset", "x"],
        ["call", "xds:///a", "/s/m", "-d", "{}", "--data-hex", ""],
        ["top", "127.0.0.1:1", "--port", "8080"],
        ["top", "127.0.0.1:1", "--web", "--once"],
        ["top", "127.0.0.1:1", "--web", "-o", "json"],
        ["top", "127.0.0.1:1", "--interval", "50ms"],
    ],
    ids=" ".join,
)
def test_invalid_command_line_exits_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "error: argument" in capsys.readouterr().err
