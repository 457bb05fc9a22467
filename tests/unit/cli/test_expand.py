"""Unit tests of proxyless.cli.expand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from proxyless.base import ValidationErrors
from proxyless.cli import main
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.short_form import short_form_schema

if TYPE_CHECKING:
    from pathlib import Path

SHORT = "tests/fixtures/short_form/every_key.yaml"
ORDERS = "tests/fixtures/short_form/orders.yaml"
RAW = "tests/fixtures/short_form/orders_raw.yaml"


def expand(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["expand", *arguments]) == 0
    return capsys.readouterr().out


def resources_of(text: str, *, is_json: bool = False) -> dict[tuple[str, str], bytes]:
    errors = ValidationErrors()
    found = parse_documents(text, errors, is_json=is_json)
    assert errors.ok, str(errors)
    return {(each.type_url, each.name): each.value for _, each in found}


def test_expanded_short_form_is_the_raw_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    out = expand(ORDERS, capsys=capsys)
    assert resources_of(out) == resources_of(expand(RAW, capsys=capsys))
    assert out.count("@type") == out.count("type.googleapis.com/")
    assert "service:" not in out


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_expanded_resources_have_the_same_bytes_again(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = expand(SHORT, "-o", output, capsys=capsys)
    again = resources_of(out, is_json=output == "json")
    with open(SHORT, encoding="utf-8") as file:
        assert again == resources_of(file.read())


def test_resources_for_envoy_have_sockets(capsys: pytest.CaptureFixture[str]) -> None:
    out = expand(ORDERS, "--for", "envoy", "--listen", "0.0.0.0:8000", capsys=capsys)
    assert "api_listener" not in out
    assert "{address: 0.0.0.0, port_value: 8000}" in out


def test_schema_is_printed_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(expand("--schema", capsys=capsys)) == short_form_schema()


def test_socket_of_envoy_is_not_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["expand", ORDERS, "--for", "envoy", "--listen", "unix:/tmp/x"])
    assert "wanted host:port" in capsys.readouterr().err


def test_files_are_required_without_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["expand"])
    assert raised.value.code == 2
    assert "FILE" in capsys.readouterr().err


def test_bad_file_is_an_error_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("clusters:\n  a: {dns: here}\n")
    assert main(["expand", str(file)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    text = "line 2, column 7: is 'here', wanted host:port"
    assert captured.err == f'proxyless expand: {file}[0].clusters["a"].dns: {text}\n'


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--schema", ORDERS], "argument FILE: has no effect with --schema"),
        (["--schema", "--for", "envoy"], "argument --for: has no effect with --schema"),
        ([ORDERS, "--listen", "0.0.0.0:1"], "argument --listen: has no effect without --for envoy"),
    ],
)
def test_argument_without_effect_is_a_usage_error(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as info:
        main(["expand", *arguments])
    assert info.value.code == 2
    assert text in capsys.readouterr().err
