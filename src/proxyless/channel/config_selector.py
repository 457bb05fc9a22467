"""ConfigSelector: chooses the configuration of each RPC.

Specs: A31.

A resolver may attach a selector to its result. Without one, the channel looks the method up in the
service config. A selector is called exactly once per RPC, at its start.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Key, Metadata, Status
from proxyless.base.frozen import frozen
from proxyless.channel.service_config import MethodConfig, ServiceConfig
from proxyless.wire import StreamEnd

# Paths in the cache of a default selector. Applications choose the paths, so there is a limit.
_CACHED_PATHS_MAX: Final = 4096


@frozen(eq=False)
class MirroredRequest:
    """The request of an RPC with one message, for copies of the RPC."""

    path: str
    metadata: Metadata
    message: bytes
    encoding: str


class Mirror(Protocol):
    """A cluster that gets copies of RPCs."""

    def send(self, channel: object, request: MirroredRequest) -> None:
        """Send a copy of a request. Does not raise.

        The channel is a `CallOwner`, which is a layer above this module.
        """


class Interception(Protocol):
    """The chain of HTTP filters of one RPC (A39), and its mirrors."""

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The clusters that get a copy of the RPC."""

    @property
    def delay_s(self) -> float:
        """The delay before the first pick. The RPC's timeout includes it."""

    @property
    def abort(self) -> Status | None:
        """If not None, the RPC ends with it after the delay and is not picked for."""

    def on_delay_start(self) -> None:
        """Called if there is a delay."""

    def on_delay_end(self) -> None:
        """Called once after `on_delay_start`: the delay or the RPC is over."""

    def on_head(self, metadata: Metadata) -> Metadata:
        """The response metadata that the application sees."""

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        """The end that the application sees. Called once, however the RPC ends."""


@frozen(eq=False)
class CallConfig:
    """A selector's result. RPCs share it unless they have an interception."""

    method_config: MethodConfig
    # For the pickers, on every pick of the RPC (A31-10).
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Runs exactly once per RPC, when the channel will not pick for it again (A31-07).
    on_commit: Callable[[], None] | None = None
    interception: Interception | None = None


class ConfigSelector(Protocol):
    """Chooses per RPC. Each resolver result replaces it."""

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        """The RPC's configuration, or the status with which it ends at once (A31-11)."""

    def close(self) -> None:
        """The channel selects no more RPCs with this selector."""


# The selector of a resolver result (A31-01). Not in the public API.
CONFIG_SELECTOR: Final[Key[ConfigSelector]] = Key("config_selector")
# In place of a selector: RPCs fail with this status. Wait-for-ready RPCs wait for the next selector
# (D29).
UNROUTABLE: Final[Key[Status]] = Key("unroutable")


class ServiceConfigSelector:
    """Default selector: looks the method up in the service config."""

    def __init__(self, service_config: ServiceConfig) -> None:
        self._service_config = service_config
        self._configs: dict[str, CallConfig] = {}

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        config = self._configs.get(path)
        if config is None:
            if len(self._configs) >= _CACHED_PATHS_MAX:
                self._configs.clear()
            config = self._configs[path] = CallConfig(self._service_config.method_config(path))
        return config

    def close(self) -> None:
        return
