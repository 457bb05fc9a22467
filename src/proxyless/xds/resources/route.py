"""RDS resources: virtual hosts, routes and their actions.

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
    """One cluster of a WeightedChoice."""

    name: str
    # At least 1: entries with weight 0 are neither chosen nor subscribed to (A28-10).
    weight: int
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)


@frozen
class ClusterChoice:
    """All RPCs are routed to this cluster."""

    cluster: str


@frozen
class WeightedChoice:
    """Each RPC is routed to one of these clusters, at random by weight."""

    clusters: tuple[WeightedCluster, ...]


@frozen
class PluginChoice:
    """RPCs are routed by the LB policy of this cluster specifier plugin."""

    plugin: str


@frozen
class HashPolicy:
    """One input of an RPC's hash (A42)."""

    kind: Literal["header", "channel_id"]
    # Whether later policies are ignored if a hash has been computed by then.
    is_terminal: bool = False
    # For the kind "header": its name in lower case, and a rewrite of its value by RE2 source and
    # substitution.
    header: str = ""
    rewrite: tuple[str, str] | None = None


@frozen
class RetryOnPolicy:
    """Retry policy (A44)."""

    # If empty, RPCs are not retried, even if the virtual host has a policy with codes.
    codes: frozenset[StatusCode]
    # 1 to 4.
    num_retries: int
    backoff_base_s: float
    backoff_max_s: float


@frozen
class MirrorPolicy:
    """A cluster that gets copies of a fraction of the route's RPCs."""

    cluster: str
    per_million: int
    # Whether the authority of copies has the suffix "-shadow".
    has_shadow_suffix: bool = True


@frozen(kw_only=True)
class RouteAction:
    """Cluster, timeouts, retries and hash of a route's RPCs.

    A time is None if its field is unset. D20 combines the times.
    """

    choice: ClusterChoice | WeightedChoice | PluginChoice
    # The fields of the base gRFC A31: timeout and max_grpc_timeout of the action.
    timeout_s: float | None = None
    max_grpc_timeout_s: float | None = None
    # The newer message max_stream_duration and its fields.
    has_max_stream_duration: bool = False
    max_stream_duration_s: float | None = None
    grpc_timeout_header_max_s: float | None = None
    retry: RetryOnPolicy | None = None
    hash_policies: tuple[HashPolicy, ...] = ()
    auto_host_rewrite: bool = False
    mirrors: tuple[MirrorPolicy, ...] = ()


@frozen
class NonForwardingAction:
    """An action that fails RPCs with UNAVAILABLE (A28-24)."""

    # The field name of the action, such as `redirect`, for the error text.
    kind: str


@frozen(kw_only=True)
class Route:
    """A matcher and an action. The first matching route of a virtual host is used."""

    path: PathMatcher
    headers: tuple[HeaderMatcher, ...] = ()
    fraction: Fraction | None = None
    action: RouteAction | NonForwardingAction
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)
    # Optional; for `explain`.
    name: str = ""


@frozen(kw_only=True)
class VirtualHost:
    """Routes for a list of domains."""

    name: str = ""
    domains: tuple[str, ...]
    routes: tuple[Route, ...]
    # For routes without their own (A44-01).
    retry: RetryOnPolicy | None = None
    filter_overrides: FilterOverrides = field(default_factory=lambda: NO_OVERRIDES)


@frozen
class ClusterSpecifierPlugin:
    """A plugin that routes may name, with the LB policy for their RPCs."""

    name: str
    # A LoadBalancingConfig list in JSON.
    lb_config: tuple[Mapping[str, object], ...]


@frozen(kw_only=True)
class RouteConfiguration:
    """An RDS resource, or the inline routes of a listener."""

    name: str
    virtual_hosts: tuple[VirtualHost, ...]
    plugins: tuple[ClusterSpecifierPlugin, ...] = ()
