"""Fixtures of all spec tests: state of the process is reset after each test."""

from collections.abc import Iterator

import pytest

from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS


@pytest.fixture(autouse=True)
def reset_call_counters() -> Iterator[None]:
    """Reset the call counters, because tests end with RPCs under way (A32-01)."""
    yield
    PROCESS_COUNTERS.clear()
