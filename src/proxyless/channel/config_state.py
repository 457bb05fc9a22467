"""Config state of a channel: service config, selector, and the RPCs that wait for a selector.

Specs: A31 (selectors), A21 (bad service configs). The channel applies a resolver result to its
policy first, and publishes the selector here when that has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.base import Status, StatusCode, ValidationErrors
from proxyless.channel.pick_queue import QueuedCall, advance_all
from proxyless.channel.service_config import ServiceConfig, parse_service_config
from proxyless.lb.connection_limit import ConnectionLimit
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.channel.config_selector import ConfigSelector
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.retry import RetryThrottle
    from proxyless.lb.api import PolicyRegistry


def parse_default_config(options: ChannelOptions, policies: PolicyRegistry) -> ServiceConfig:
    """The options' service config. Raises ValidationError with the options and every bad field."""
    errors = ValidationErrors()
    config = parse_service_config(options.service_config, errors, policies)
    given = (f"option {name!r}" for name in options.service_config_sources)
    errors.raise_if_any(", ".join(["service config of the channel", *given]))
    return config


class UnselectedCall(QueuedCall, Protocol):
    """The methods of a call that waits for a selector."""

    wait_for_ready: bool | None

    @property
    def path(self) -> str: ...

    def finish(self, end: StreamEnd) -> None: ...


class ConfigState:
    """Service config and selector of a channel, and its unselected RPCs."""

    def __init__(self, target: str, options: ChannelOptions, policies: PolicyRegistry) -> None:
        """Raises ValueError if the options' service config cannot be used."""
        # Fixed at construction.
        self._target = target
        self._is_resolver_config_used = options.is_resolver_config_used
        self.policies = policies
        self._default = parse_default_config(options, policies)
        # The resolver's last valid service config: its JSON, and parsed.
        self._parsed: tuple[Mapping[str, object], ServiceConfig]
        self._parsed = (options.service_config, self._default)
        # In use; None while the channel is idle or has no result yet.
        self.service_config: ServiceConfig | None = None
        self.selector: ConfigSelector | None = None
        # Number of configs that were published. Calls keep the number of their own.
        self.generation = 0
        # From the resolver: the reason for which there is no selector (D29).
        self.unroutable: Status | None = None
        # None unless the service config limits retries. Kept while the channel is idle.
        self.throttle: RetryThrottle | None = None
        # Limit of the subchannels, from the service config (A105).
        self.connection_limit = ConnectionLimit()
        # RPCs that wait for a selector, in their order.
        self.unselected: dict[UnselectedCall, None] = {}

    def choose(self, found: Mapping[str, object] | Status | None) -> ServiceConfig | Status:
        """The service config to use if a resolver result has this one; or an error."""
        if found is None or not self._is_resolver_config_used:
            return self._default
        if isinstance(found, Status):
            return found
        # A resolver whose service config did not change returns the same object again.
        if found is self._parsed[0]:
            return self._parsed[1]
        errors = ValidationErrors()
        config = parse_service_config(found, errors, self.policies)
        if errors.ok:
            self._parsed = (found, config)
            return config
        return Status(StatusCode.UNAVAILABLE, f"{self._target}: service config: {errors}")

    def use(self, service_config: ServiceConfig) -> bool:
        """Use this service config; False if it is in use already."""
        if service_config is self.service_config:
            return False
        self.throttle = self._next_throttle(service_config)
        self.service_config = service_config
        self.connection_limit.set(service_config.connections_max)
        return True

    def _next_throttle(self, service_config: ServiceConfig) -> RetryThrottle | None:
        config = service_config.retry_throttling
        if config is None:
            return None
        from proxyless.channel.retry import RetryThrottle  # noqa: PLC0415 - seldom used

        return RetryThrottle.following(self.throttle, config)

    def publish(self, selector: ConfigSelector) -> None:
        """Select with this from now on, beginning with the RPCs that wait."""
        previous, self.selector = self.selector, selector
        self.generation += 1
        if previous is not None and previous is not selector:
            previous.close()
        unselected, self.unselected = self.unselected, {}
        advance_all(unselected)

    def unpublish(self) -> None:
        """Close the selector, if there is one. RPCs wait for the next."""
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    def release(self) -> None:
        """The channel is idle or closed: the next result starts anew."""
        self.unpublish()
        self.service_config = self.unroutable = None

    def add(self, call: UnselectedCall) -> None:
        """Select the call with the next selector."""
        self.unselected[call] = None

    def remove(self, call: UnselectedCall) -> None:
        """Idempotent."""
        self.unselected.pop(call, None)

    def fail_unselected(self, status: Status, describe: Callable[[Status, str], Status]) -> None:
        """End the RPCs that wait for a selector, except those that are wait-for-ready.

        `describe` makes the status of an RPC, given its path.
        """
        for call in list(self.unselected):
            if not call.wait_for_ready:
                call.finish(StreamEnd(describe(status, call.path)))
