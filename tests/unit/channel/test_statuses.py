"""Statuses that the channel gives: which codes pass, and what the texts say."""

import pytest

from proxyless.base import Status, StatusCode
from proxyless.channel.statuses import from_control_plane, too_large_to_send

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
    told = from_control_plane(status)
    if code.name not in RESERVED:
        assert told is status
        return
    assert told.code is StatusCode.INTERNAL
    assert "said" in told.details
    assert code.name in told.details
    assert from_control_plane(told) is told


def test_message_over_the_limit_is_named_with_both_sizes() -> None:
    status = too_large_to_send(5, 4)
    assert status.code is StatusCode.RESOURCE_EXHAUSTED
    assert status.details == "Sent message larger than max (5 vs. 4)"
