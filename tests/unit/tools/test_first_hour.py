"""Unit tests of tools.first_hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.cli import main
from tools.first_hour import (
    DEADLINE_S,
    PAGE,
    FirstHourError,
    Step,
    Terminals,
    check_mistake,
    format_page,
    format_steps,
)

if TYPE_CHECKING:
    from pathlib import Path

GOOD = 'UNAVAILABLE: listener "a": gone; see: proxyless explain a.B/C --target xds:///a'


def failed(answer: str, seconds: float = 1.0) -> Step:
    return Step("python client.py", seconds, answer, "a change")


@pytest.fixture
def terminals(tmp_path: Path) -> Terminals:
    return Terminals(tmp_path, tmp_path)


def test_next_command_is_the_end_of_the_answer() -> None:
    assert check_mistake(failed(GOOD), "gone") == "proxyless explain a.B/C --target xds:///a"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (failed(f"Traceback\n{GOOD}"), "wanted one line"),
        (failed(GOOD, seconds=60.0), "ended after 60.0 s"),
        (failed(GOOD.partition(";")[0]), "wanted the next command"),
        (failed(GOOD.replace("gone", "")), "wanted the cause 'gone'"),
    ],
)
def test_answer_is_rejected_if_something_is_missing(step: Step, message: str) -> None:
    with pytest.raises(FirstHourError, match=message):
        check_mistake(step, "gone")


def test_deadline_is_that_of_the_client(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert f"timeout={DEADLINE_S:g})" in (tmp_path / "client.py").read_text()


def test_ports_that_are_used_are_shown_as_those_of_init(terminals: Terminals) -> None:
    listen = f"--listen 127.0.0.1:{terminals.ports['18000']}"
    assert terminals.shown(f"proxyless serve mesh {listen}") == "proxyless serve mesh"
    assert terminals.shown(f"127.0.0.1:{terminals.ports['50061']}: no") == "127.0.0.1:50061: no"


def test_change_of_a_text_that_is_not_there_is_an_error(terminals: Terminals) -> None:
    (terminals.directory / "mesh.yaml").write_text("a b")
    terminals.change("mesh.yaml", {"a": "c"}, to="other.yaml")
    assert (terminals.directory / "other.yaml").read_text() == "c b"
    with pytest.raises(FirstHourError, match="does not have 'c'"):
        terminals.change("mesh.yaml", {"c": "d"})


def test_page_has_changes_commands_times_and_answers() -> None:
    assert format_steps([Step("a", 0.52, "b"), Step("c", 2, "d", "e")]).splitlines() == [
        "```text",
        "$ a  (0.5 s)",
        "b",
        "",
        "# e",
        "$ c  (2.0 s)",
        "d",
        "```",
    ]


def test_page_of_the_documents_is_one_of_this_tool() -> None:
    """Its texts around the steps; the steps have the times of another run."""
    first, second = format_page([Step("|", 0, "")], []).split("$ |  (0.0 s)\n```")
    page = PAGE.read_text()
    assert page.startswith(first)
    assert second.removesuffix("```text\n```\n") in page
