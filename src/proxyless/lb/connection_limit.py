"""ConnectionLimit: the maximum number of connections of a subchannel (A105).

One object is shared by the subchannels of a channel, or of a cluster. It changes during the life of
a subchannel, and is not part of its identity, so a change never closes a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Key
from proxyless.base.environment import read_flag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Environment variables that enable the feature in service configs and in xDS.
SERVICE_CONFIG_GUARD: Final = "GRPC_EXPERIMENTAL_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING"
XDS_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING"

# "This limit will be 10 by default" - A105
CONNECTIONS_CAP_DEFAULT: Final = 10


def is_scaling_enabled(environ: Mapping[str, str], guard: str) -> bool:
    """Whether the environment enables connection scaling that is configured in this way."""
    return read_flag(environ, guard, default=False)


class ConnectionLimit:
    """Maximum number of connections of each subchannel that has it."""

    __slots__ = ("_on_raised", "value")

    def __init__(self, value: int = 1) -> None:
        self.value = value
        self._on_raised: dict[Callable[[], None], None] = {}

    def set(self, value: int) -> None:
        """Change the maximum; if it is raised, call the listeners, each once."""
        is_raised = value > self.value
        self.value = value
        if is_raised:
            listeners, self._on_raised = self._on_raised, {}
            for listener in listeners:
                listener()

    def add_listener(self, on_raised: Callable[[], None]) -> None:
        """Call this when the maximum is next raised. Idempotent."""
        self._on_raised[on_raised] = None

    def remove_listener(self, on_raised: Callable[[], None]) -> None:
        """Idempotent."""
        self._on_raised.pop(on_raised, None)


# Subchannel attribute: the limit of its cluster, used in place of the channel's.
CONNECTION_LIMIT: Final = Key[ConnectionLimit]("connection_limit")
