"""Which settings apply to an RPC, and where may it go?

Specs: A31 (ConfigSelector).

A resolver may hand a selector to the channel with its result; without one, the channel's own looks
the method up in the service config. It is asked exactly once per RPC, at its start.
"""

from collections.abc import Callable
from typing import Final, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Key, Metadata, Status
from proxyless.base.frozen import frozen
from proxyless.channel.service_config import MethodConfig, ServiceConfig
from proxyless.wire import StreamEnd

# Distinct paths that a default selector remembers; callers choose the paths, so there is a limit.
_REMEMBERED_PATHS_MAX: Final = 4096


class Interception(Protocol):
    """What stands between one RPC and its application: a chain of HTTP filters (A39)."""

    @property
    def delay_s(self) -> float:
        """How long the RPC waits before it is picked for; its deadline counts meanwhile."""
        ...

    @property
    def abort(self) -> Status | None:
        """With what the RPC ends after the delay, instead of being picked for."""
        ...

    def on_delay_start(self) -> None:
        """The RPC waits from now on. Not called if there is no delay."""
        ...

    def on_delay_end(self) -> None:
        """It waits no longer: the delay is over, or the RPC. Called once after `on_delay_start`."""
        ...

    def on_head(self, metadata: Metadata) -> Metadata:
        """The response metadata that the application sees."""
        ...

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        """The end that the application sees. Called once, however the RPC ends."""
        ...


@frozen(eq=False)
class CallConfig:
    """What a selector says about RPCs. Shared by as many as it fits, so that it is made once."""

    method_config: MethodConfig
    # For the pickers, on every pick of the RPC (A31-10).
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Runs exactly once per RPC, when the channel will not pick for it again (A31-07).
    on_commit: Callable[[], None] | None = None
    # Of one RPC only.
    interception: Interception | None = None


class ConfigSelector(Protocol):
    """Chooses per RPC. Driven by the channel; replaced as a whole by the next resolver result."""

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        """The RPC's configuration, or the status with which it ends at once (A31-11)."""
        ...

    def close(self) -> None:
        """No RPC will be selected by this one any more."""
        ...


# Where a resolver puts its selector (A31-01); no public API sets or reads it.
CONFIG_SELECTOR: Final[Key[ConfigSelector]] = Key("config_selector")
# Instead of it: there is nothing to select by any more. RPCs fail with this status, unless they are
# wait-for-ready: those are held until there is a selector again (D29).
UNROUTABLE: Final[Key[Status]] = Key("unroutable")


class ServiceConfigSelector:
    """The selector of a resolver that brings none: the service config's own method table."""

    def __init__(self, service_config: ServiceConfig) -> None:
        self._service_config = service_config
        self._known: dict[str, CallConfig] = {}

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        config = self._known.get(path)
        if config is None:
            if len(self._known) >= _REMEMBERED_PATHS_MAX:
                self._known.clear()
            config = self._known[path] = CallConfig(self._service_config.method_config(path))
        return config

    def close(self) -> None:
        return
