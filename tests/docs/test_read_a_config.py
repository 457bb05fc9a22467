"""Does everything that docs/howto/read-a-config.md shows work, and say what it says there?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from proxyless.cli import main

PAGE = Path(__file__).parent.parent.parent / "docs" / "howto" / "read-a-config.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each command line with what the page says that it prints."""
    found = []
    for block in blocks("console"):
        for session in re.split(r"^\$ proxyless ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "output"), commands())
def test_a_command_says_what_the_page_says(
    command: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (mesh,) = blocks("yaml")
    (tmp_path / "mesh.yaml").write_text(mesh)
    monkeypatch.chdir(tmp_path)
    main(shlex.split(command))
    assert capsys.readouterr().out == output


def test_the_page_shows_both_commands() -> None:
    assert {command.split()[0] for command, _ in commands()} == {"lint", "explain"}


async def test_the_python_code_runs() -> None:
    (code,) = blocks("python")
    # Any port: another test may have this one.
    names: dict[str, object] = {}
    exec(compile(code.replace(":50052", ":0"), str(PAGE), "exec"), names)
    server = names["server"]
    await server.start()  # type: ignore[attr-defined]
    await server.stop(None)  # type: ignore[attr-defined]
