"""Unit tests of proxyless.cli.completion. bash runs its script; zsh and fish are not installed."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import COMMANDS, main
from proxyless.cli.completion import describe_commands

if TYPE_CHECKING:
    from pathlib import Path


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def complete_in_bash(text: str, words: list[str], directory: Path) -> set[str]:
    """What bash offers for the last word."""
    (directory / "completion.bash").write_text(text)
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"source completion.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        'compopt() { :; }; _proxyless; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ca"], {"call"}),
        (["status", "--so"], {"--sort"}),
        (["status", "--sort", "a"], {"age"}),
        (["status", "-o", ""], {"table", "json"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["call", "--timeout", ""], set()),
        (["explain", "--config", "mesh"], {"mesh.yaml"}),
        (["lint", "me"], {"mesh.yaml"}),
        (["nothing", ""], set()),
    ],
)
def test_bash_completes_commands_options_values_and_files(
    words: list[str], wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mesh.yaml").touch()
    text = script("bash", capsys)
    assert complete_in_bash(text, ["proxyless", *words], tmp_path) == wanted


def test_bash_completes_all_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = complete_in_bash(script("bash", capsys), ["proxyless", ""], tmp_path)
    assert found == {*COMMANDS, "--help", "--version"}


def test_descriptions_are_those_of_the_parsers() -> None:
    status = describe_commands()["status"]
    assert status.summary == COMMANDS["status"]
    (sort,) = [option for option in status.options if "--sort" in option.names]
    assert sort.takes_value
    assert sort.choices == ("type", "name", "status", "age")
    assert not any(option.takes_path for option in status.options)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for name, command in describe_commands().items():
        assert re.search(rf"\b{name}\b", text)
        for option in command.options:
            longest = max(option.names, key=len)
            assert (longest if shell == "zsh" else f"-l {longest[2:]}") in text
    # Quotes are balanced in every line.
    assert all(line.replace("\\'", "").count("'") % 2 == 0 for line in text.splitlines())
