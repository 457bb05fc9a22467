"""Interfaces of resolvers, their factories and listeners; options of resolvers.

Specs: A31 (a result carries a config selector), A21 (a service config may be bad).

Theory of operation
    A resolver lives on one loop. Its owner starts it, then gets results through its listener: the
    first as soon as there is one, later ones after a change or a request. A failure is a result,
    too: a `Status` in place of the endpoints. The listener is never called inside a call to the
    resolver, and never after `close`. It may call any method of the resolver inside `on_result`.
"""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    NULL_TRACE,
    Attributes,
    BackoffPolicy,
    Endpoint,
    Status,
    Trace,
)
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.resolver.http_proxy import ProxyServer
    from proxyless.resolver.target import Target
    from proxyless.runtime import Clock, Network, Random


@frozen
class ResolverResult:
    """A complete result. It replaces the previous one."""

    # After an error, a listener keeps the endpoints of an earlier result.
    endpoints: tuple[Endpoint, ...] | Status
    # The JSON object, which the channel parses; None without one.
    service_config: Mapping[str, object] | Status | None = None
    # For the policies, and for the channel itself (config selector).
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Source or problem of the endpoints, for error texts.
    resolution_note: str = ""


class ResolverListener(Protocol):
    """Called by a resolver; implemented by the channel."""

    def on_result(self, result: ResolverResult) -> Status:
        """Use this result. Returns OK, or the reason why it cannot be used.

        A resolver that polls then resolves again after a backoff, as after a failure (A21).
        """


class Resolver(Protocol):
    """Resolves one target, and calls its listener with each result."""

    def start(self) -> None:
        """Called once, before any other method except `close`."""

    def request_reresolution(self) -> None:
        """Hint that the last result may be stale: resolve again, rate limited, or do nothing."""

    def reset_backoff(self) -> None:
        """End a backoff now, and reset it."""

    def close(self) -> None:
        """Stop calling the listener; cancel timers and tasks. Idempotent."""


@runtime_checkable
class ExplainedResolver(Resolver, Protocol):
    """Resolver that helps to find mistakes: its texts end those of RPCs that never succeeded."""

    def describe_wait(self) -> Status:
        """What the first result waits for; OK if that is unknown."""

    def name_command(self, path: str) -> str:
        """Command that explains RPCs of this method; empty if there is none."""


@frozen(kw_only=True)
class DnsTimes:
    """Intervals, timeout and backoff of look-ups, by default grpcio's. inf means never."""

    floor_s: float = 30.0
    refresh_s: float = inf
    answer_timeout_s: float = 120.0
    backoff: BackoffPolicy = BackoffPolicy()


@frozen(kw_only=True)
class ResolverOptions:
    """Options of a channel that its resolver reads. None: not set.

    The front makes them of the application's arguments (`front.options`), once per channel. No
    resolver of this package reads an argument by its name.
    """

    # The channel's `:authority`; None: that of the target.
    authority: str | None = None
    dns: DnsTimes = DnsTimes()
    # True: the environment names the proxy, if there is one; otherwise `proxy` does.
    is_proxy_from_environment: bool = True
    # None: connections are direct.
    proxy: ProxyServer | None = None

    # For the scheme `xds`.
    # Timeout of routes that set none; 0: no timeout.
    xds_default_timeout_s: float | None = None
    xds_holds_config: bool | None = None
    is_xds_stream_shared: bool | None = None
    # Directory; empty: no cache.
    xds_config_cache: str | None = None

    # All arguments as the application passed them, for resolvers of other packages. Not in the
    # repr: they may contain a password.
    by_name: Mapping[str, object] = field(default_factory=dict, repr=False)


@frozen
class ResolverContext:
    """Tools of a resolver, and the options of its channel."""

    network: Network
    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    options: ResolverOptions = ResolverOptions()


class ResolverFactory(Protocol):
    """Creates resolvers for the targets of one scheme."""

    @property
    def scheme(self) -> str: ...

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        """A resolver that is not started. Raises ValueError for a malformed target."""

    def default_authority(self, target: Target) -> str:
        """The `:authority` of calls to this target, or ValueError as from `create`.

        By default, TLS checks the host in it.
        """
