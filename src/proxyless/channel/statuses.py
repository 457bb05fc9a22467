"""Statuses that a channel itself gives to RPCs, and the channel's logger.

Specs: A54 (which codes a control plane may choose).
"""

import logging
from typing import Final

from proxyless.base import OK, State, Status, StatusCode, one_line
from proxyless.lb.api import Picker

LOGGER: Final = logging.getLogger("proxyless.channel")

# "restricted control-plane status codes" - A54
_RESTRICTED: Final = frozenset(
    {
        StatusCode.OK,
        StatusCode.INVALID_ARGUMENT,
        StatusCode.NOT_FOUND,
        StatusCode.ALREADY_EXISTS,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.ABORTED,
        StatusCode.OUT_OF_RANGE,
        StatusCode.DATA_LOSS,
    }
)

# Texts of grpcio.
CANCELLED: Final = Status(StatusCode.CANCELLED, "Locally cancelled by application!")
DEADLINE_EXCEEDED: Final = Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def failure_of(picker: Picker) -> Status:
    """The status that RPCs fail with under this picker, which may be an application's own."""
    try:
        return picker.status
    except Exception:
        # The RPC has to end even without a reason.
        LOGGER.exception("status of picker raised")
        return OK


def deadline_exceeded(waited_for: str, failure: Status) -> Status:
    """The status of an RPC whose deadline passed before it was sent; the failure may be OK."""
    reason = f": {failure.details}" if not failure.is_ok else ""
    text = f"{DEADLINE_EXCEEDED.details} while waiting for {waited_for}{reason}"
    return Status(StatusCode.DEADLINE_EXCEEDED, text)


def from_control_plane(status: Status) -> Status:
    """The status of an RPC that a resolver, selector or picker fails with this one (A54-01).

    Restricted codes are for servers only, so they become INTERNAL.
    """
    if status.code not in _RESTRICTED:
        return status
    text = f"illegal status code from the control plane: {status}"
    return Status(StatusCode.INTERNAL, text)


def raised(source: str, error: Exception) -> Status:
    return Status(StatusCode.INTERNAL, one_line(f"{source} raised {type(error).__name__}: {error}"))


def too_large_to_send(size: int, limit: float) -> Status:
    # The text of grpcio, which users search for.
    text = f"Sent message larger than max ({size} vs. {limit})"
    return Status(StatusCode.RESOURCE_EXHAUSTED, text)


def log_change(target: str, states: tuple[State, State], source: Status | Picker) -> None:
    """Log that RPCs begin or cease to fail. The trace has every change."""
    before, after = states
    if after is State.TRANSIENT_FAILURE:
        status = source if isinstance(source, Status) else failure_of(source)
        LOGGER.info("%s: %s", target, status.details)
    elif after is State.READY and before is State.TRANSIENT_FAILURE:
        LOGGER.info("%s: READY again", target)
