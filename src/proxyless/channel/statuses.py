"""Which statuses does the channel itself give to RPCs?

Specs: A54 (which codes a control plane may choose).
"""

from typing import Final

from proxyless.base import Status, StatusCode

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


def from_control_plane(status: Status) -> Status:
    """What an RPC ends with if a resolver, selector or picker says this (A54-01).

    These codes are the application's own: nobody else may make it believe that its server spoke.
    """
    if status.code not in _RESTRICTED:
        return status
    text = f"illegal status code from the control plane: {status}"
    return Status(StatusCode.INTERNAL, text)


def too_large_to_send(size: int, limit: float) -> Status:
    """A request message is over the limit."""
    # The words of grpcio, which people search for.
    text = f"Sent message larger than max ({size} vs. {limit})"
    return Status(StatusCode.RESOURCE_EXHAUSTED, text)
