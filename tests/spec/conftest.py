"""What holds for all tests of requirements: what the process shares, one test does not leave."""

from collections.abc import Iterator

import pytest

from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS


@pytest.fixture(autouse=True)
def no_rpc_of_another_test_counts() -> Iterator[None]:
    """Worlds are left with RPCs under way, which the process goes on counting (A32-01)."""
    yield
    PROCESS_COUNTERS.clear()
