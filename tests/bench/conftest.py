"""Fixtures of all tests of costs."""

import pytest


@pytest.fixture(autouse=True)
def generated_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods of value classes are generated at once: counts are those of a process that runs."""
    monkeypatch.setattr("proxyless.base.frozen.UNGENERATED_CALLS", 0)
