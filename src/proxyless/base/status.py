"""How did an RPC, a connection or an update end?

`Status` is the value that carries trouble through the system: pickers, watchers and results hold
one, nobody raises one below the API edge. The codes are gRPC's own numbers.
"""

from enum import IntEnum

from proxyless.base.frozen import frozen


class StatusCode(IntEnum):
    """The seventeen gRPC status codes, by wire number."""

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
    """A code and one line of text that lets an operator act."""

    code: StatusCode
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code is StatusCode.OK

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}" if self.details else self.code.name


OK = Status(StatusCode.OK)
