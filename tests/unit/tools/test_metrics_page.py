"""Unit tests of tools.metrics_page."""

from pathlib import Path

import pytest

from proxyless.metrics.instruments import INSTRUMENTS
from tools import metrics_page

MARKER = "<!-- metrics: grpc. proxyless. -->\n"


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics_page.main(["--check"]) == 0, capsys.readouterr().err


def test_every_instrument_has_one_row() -> None:
    page = metrics_page.PAGE.read_text()
    for each in INSTRUMENTS:
        assert page.count(f"\n| `{each.name}` |") == 1


def test_an_old_table_is_replaced_and_the_rest_is_kept() -> None:
    page = metrics_page.format_page(f"before\n\n{MARKER}| old |\n|---|\n\nafter\n")
    assert page.startswith(f"before\n\n{MARKER}{metrics_page.HEAD}| `grpc.client.")
    assert page.endswith(" |\n\nafter\n")
    assert "| old |" not in page
    assert metrics_page.format_page(page) == page


def test_an_instrument_without_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"metric 'proxyless\..*' is in no table"):
        metrics_page.format_page("<!-- metrics: grpc. -->\n")


def test_check_fails_when_the_page_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "metrics.md"
    page.write_text(MARKER)
    monkeypatch.setattr(metrics_page, "ROOT", tmp_path)
    monkeypatch.setattr(metrics_page, "PAGE", page)
    assert metrics_page.main(["--check"]) == 1
    assert "is not up to date" in capsys.readouterr().err
    assert metrics_page.main([]) == 0
    assert metrics_page.main(["--check"]) == 0
