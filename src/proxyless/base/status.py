"""Status of an RPC, a connection or an update.

Below the API, errors of the outside world are `Status` values, not exceptions.
"""

from enum import IntEnum

from proxyless.base.frozen import frozen


class StatusCode(IntEnum):
    """The gRPC status codes, with their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@frozen
class Status:
    """A code, and one line of text for an operator."""

    code: StatusCode
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code is StatusCode.OK

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}" if self.details else self.code.name


OK = Status(StatusCode.OK)
