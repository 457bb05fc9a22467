"""Unit tests of proxyless.channel.statuses."""

import logging

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel.statuses import (
    deadline_exceeded,
    from_control_plane,
    log_change,
    too_large_to_send,
)
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker

# "status codes reserved for application use", and OK - A54
RESERVED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS"} | {
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "DATA_LOSS",
}


@pytest.mark.parametrize("code", StatusCode)
def test_only_codes_of_the_application_are_replaced(code: StatusCode) -> None:
    status = Status(code, "said")
    result = from_control_plane(status)
    if code.name not in RESERVED:
        assert result is status
        return
    assert result.code is StatusCode.INTERNAL
    assert "said" in result.details
    assert code.name in result.details
    assert from_control_plane(result) is result


def test_message_over_the_limit_is_named_with_both_sizes() -> None:
    status = too_large_to_send(5, 4)
    assert status.code is StatusCode.RESOURCE_EXHAUSTED
    assert status.details == "Sent message larger than max (5 vs. 4)"


def test_log_has_when_rpcs_fail_and_when_they_recover(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxyless.channel")
    status = Status(StatusCode.UNAVAILABLE, "connection refused")
    idle, connecting, ready = State.IDLE, State.CONNECTING, State.READY
    failing = State.TRANSIENT_FAILURE
    log_change("dns:///a", (idle, connecting), QUEUE_PICKER)
    log_change("dns:///a", (connecting, failing), FailPicker(status))
    log_change("dns:///a", (failing, ready), QUEUE_PICKER)
    log_change("dns:///a", (idle, ready), QUEUE_PICKER)
    log_change("dns:///a", (ready, failing), Status(StatusCode.UNAVAILABLE, "no routes"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "dns:///a: connection refused"),
        ("INFO", "dns:///a: READY again"),
        ("INFO", "dns:///a: no routes"),
    ]


def test_deadline_exceeded_names_what_the_rpc_waited_for() -> None:
    ok = deadline_exceeded("a connection", OK)
    assert ok.code is StatusCode.DEADLINE_EXCEEDED
    assert ok.details == "Deadline Exceeded while waiting for a connection"
    failing = deadline_exceeded("a connection", Status(StatusCode.UNAVAILABLE, "refused"))
    assert failing.details == "Deadline Exceeded while waiting for a connection: refused"
