"""Which statuses does the channel itself give to RPCs, and when does it log why?

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


# The words of grpcio.
CANCELLED: Final = Status(StatusCode.CANCELLED, "Locally cancelled by application!")
DEADLINE_EXCEEDED: Final = Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def failure_of(picker: Picker) -> Status:
    """Why RPCs fail with this picker, which may be an application's own."""
    try:
        return picker.status
    except Exception:
        # RPCs that are told why they end have to end, whatever happens.
        LOGGER.exception("status of picker raised")
        return OK


def deadline_exceeded(waited_for: str, failure: Status) -> Status:
    """The time of an RPC was up before it was sent; the failure is OK if nothing is known to be."""
    why = f": {failure.details}" if not failure.is_ok else ""
    text = f"{DEADLINE_EXCEEDED.details} while waiting for {waited_for}{why}"
    return Status(StatusCode.DEADLINE_EXCEEDED, text)


def from_control_plane(status: Status) -> Status:
    """What an RPC ends with if a resolver, selector or picker says this (A54-01).

    These codes are the application's own: nobody else may make it believe that its server spoke.
    """
    if status.code not in _RESTRICTED:
        return status
    text = f"illegal status code from the control plane: {status}"
    return Status(StatusCode.INTERNAL, text)


def raised(who: str, error: Exception) -> Status:
    """Code that an RPC depends on, perhaps the application's own, has raised."""
    return Status(StatusCode.INTERNAL, one_line(f"{who} raised {type(error).__name__}: {error}"))


def too_large_to_send(size: int, limit: float) -> Status:
    """A request message is over the limit."""
    # The words of grpcio, which people search for.
    text = f"Sent message larger than max ({size} vs. {limit})"
    return Status(StatusCode.RESOURCE_EXHAUSTED, text)


def log_change(target: str, states: tuple[State, State], why: Status | Picker) -> None:
    """For humans: RPCs fail, and why, or do not any more. Every change is in the trace."""
    before, after = states
    if after is State.TRANSIENT_FAILURE:
        status = why if isinstance(why, Status) else failure_of(why)
        LOGGER.info("%s: %s", target, status.details)
    elif after is State.READY and before is State.TRANSIENT_FAILURE:
        LOGGER.info("%s: READY again", target)
