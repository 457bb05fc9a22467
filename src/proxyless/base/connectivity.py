"""In which state is a connection, or a whole tree of them?

Specs: gRPC "Connectivity Semantics and API".

Only the names of the states. Who moves between them when is the business of the subchannel and of
each load balancing policy.
"""

from enum import Enum


class State(Enum):
    """The five connectivity states of a channel, a policy or a subchannel."""

    IDLE = "IDLE"
    CONNECTING = "CONNECTING"
    READY = "READY"
    TRANSIENT_FAILURE = "TRANSIENT_FAILURE"
    SHUTDOWN = "SHUTDOWN"

    def __str__(self) -> str:
        return self.value
