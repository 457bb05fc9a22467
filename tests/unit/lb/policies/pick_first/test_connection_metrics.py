"""Unit tests of proxyless.lb.policies.pick_first.connection_metrics. Policy: tests/spec."""

import pytest

from proxyless.base import State
from proxyless.lb.policies.pick_first.connection_metrics import record_attempted, record_selected
from proxyless.metrics.instruments import (
    PICK_FIRST_ATTEMPTS_FAILED,
    PICK_FIRST_ATTEMPTS_SUCCEEDED,
    PICK_FIRST_DISCONNECTIONS,
)
from tests.worlds.stats_plugins import TARGET, RecordingPlugin


@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
def test_only_the_loss_of_a_connection_is_a_disconnection(before: State, after: State) -> None:
    plugin = RecordingPlugin()
    record_selected(plugin.metrics, before, after)
    is_lost = before is State.READY and after is not State.READY
    assert plugin.counts(PICK_FIRST_DISCONNECTIONS) == ({(TARGET,): 1} if is_lost else {})


@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
@pytest.mark.parametrize("is_eligible", [False, True])
def test_only_the_end_of_an_attempt_is_counted(
    before: State, after: State, is_eligible: bool
) -> None:
    plugin = RecordingPlugin()
    record_attempted(plugin.metrics, before, after, is_eligible=is_eligible)
    found = (
        plugin.count_of(PICK_FIRST_ATTEMPTS_SUCCEEDED),
        plugin.count_of(PICK_FIRST_ATTEMPTS_FAILED),
    )
    was_connecting = before is State.CONNECTING
    assert found == (
        int(was_connecting and after is State.READY and is_eligible),
        int(was_connecting and after is State.TRANSIENT_FAILURE),
    )
