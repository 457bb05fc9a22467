"""Connectivity states.

Specs: gRPC "Connectivity Semantics and API".
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

    # By identity, without a call of Python code: policies count endpoints by state.
    __hash__ = object.__hash__
