"""Where does an RPC go, and under which rules?

Specs: A28 (matching, weights), A31 (timeouts), A39 (overrides), A42 (hash policies), A44 (retries).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from proxyless.base.frozen import frozen
from proxyless.xds.resources.filter import NO_OVERRIDES, FilterOverrides

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import StatusCode
    from proxyless.xds.resources.matcher import Fraction, HeaderMatcher, PathMatcher


@frozen
class WeightedCluster:
    """One of several clusters that share a route's RPCs."""

    name: str
    # At least 1: entries of weight zero are neither chosen nor subscribed to (A28-10).
    weight: int
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)


@frozen
class ClusterChoice:
    """All RPCs go to this cluster."""

    cluster: str


@frozen
class WeightedChoice:
    """Each RPC goes to one of these clusters, drawn by weight."""

    clusters: tuple[WeightedCluster, ...]


@frozen
class PluginChoice:
    """A policy of this plugin's own decides (an entry of the route configuration's plugins)."""

    plugin: str


@frozen
class HashPolicy:
    """One ingredient of an RPC's hash (A42)."""

    kind: Literal["header", "channel_id"]
    # Ends the list if the hash has a value by now.
    is_terminal: bool = False
    # Of a header policy: its name in lower case, and what to rewrite in its value.
    header: str = ""
    # RE2 source and substitution, as in RegexMatchAndSubstitute.
    rewrite: tuple[str, str] | None = None


@frozen
class RetryOnPolicy:
    """When and how often to send again (A44)."""

    # May be empty: nothing is sent again, also if the virtual host has a policy with codes.
    codes: frozenset[StatusCode]
    # At least 1, at most 4: there are never more than 5 attempts.
    num_retries: int
    backoff_base_s: float
    backoff_max_s: float


@frozen(kw_only=True)
class RouteAction:
    """What happens to RPCs of a route. A time is None if its field is unset; D20 combines them."""

    choice: ClusterChoice | WeightedChoice | PluginChoice
    # The seed's dialect (A31): timeout and max_grpc_timeout of the action itself.
    timeout_s: float | None = None
    max_grpc_timeout_s: float | None = None
    # The final one: the message max_stream_duration, with its fields. A route for which the
    # message is absent has None twice and `has_max_stream_duration` False.
    has_max_stream_duration: bool = False
    max_stream_duration_s: float | None = None
    grpc_timeout_header_max_s: float | None = None
    retry: RetryOnPolicy | None = None
    hash_policies: tuple[HashPolicy, ...] = ()
    auto_host_rewrite: bool = False


@frozen
class NonForwardingAction:
    """Matches, but sends nowhere: an RPC fails with UNAVAILABLE (A28-06)."""

    # The field of the action, such as `redirect`, for the error text.
    kind: str


@frozen(kw_only=True)
class Route:
    """The first route of a virtual host that matches decides."""

    path: PathMatcher
    headers: tuple[HeaderMatcher, ...] = ()
    fraction: Fraction | None = None
    action: RouteAction | NonForwardingAction
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)
    # For explanations; control planes often leave it empty.
    name: str = ""


@frozen(kw_only=True)
class VirtualHost:
    """The routes of some domains."""

    name: str = ""
    domains: tuple[str, ...]
    routes: tuple[Route, ...]
    # For routes that have none of their own (A44-01).
    retry: RetryOnPolicy | None = None
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)


@frozen
class ClusterSpecifierPlugin:
    """A plugin that a route may name: the load balancing config that takes its RPCs."""

    name: str
    # A LoadBalancingConfig list in JSON.
    lb_config: tuple[Mapping[str, object], ...]


@frozen(kw_only=True)
class RouteConfiguration:
    """An RDS resource, or the same inside a listener."""

    name: str
    virtual_hosts: tuple[VirtualHost, ...]
    plugins: tuple[ClusterSpecifierPlugin, ...] = ()
