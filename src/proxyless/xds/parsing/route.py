"""Is this RouteConfiguration valid, and what does it say?

Specs: A28 (virtual hosts, matches, weights), A31 and D20 (timeouts), A39 (overrides),
A81 (auto_host_rewrite). Retries and hash policies are in `route_policies`.

What is wrong is an error; what is merely unknown is not: a route that asks for something that this
client does not have is dropped, so that a control plane can serve clients of all ages.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from proxyless.base.frozen import frozen
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.http_filters import parse_filter_overrides
from proxyless.xds.parsing.limits import (
    DOMAINS_MAX,
    HEADERS_MAX,
    ROUTES_MAX,
    VIRTUAL_HOSTS_MAX,
    WEIGHTED_CLUSTERS_MAX,
)
from proxyless.xds.parsing.matchers import (
    can_match_a_method,
    parse_header_matcher,
    parse_path_matcher,
    parse_runtime_fraction,
)
from proxyless.xds.parsing.parts import PartMemory
from proxyless.xds.parsing.plugins import NO_PLUGINS, parse_plugins
from proxyless.xds.parsing.proto_fields import (
    UINT32_MAX,
    check_count,
    read_duration_s,
    read_uint32,
)
from proxyless.xds.parsing.route_policies import parse_hash_policies, parse_retry
from proxyless.xds.resources.route import (
    ClusterChoice,
    NonForwardingAction,
    PluginChoice,
    Route,
    RouteAction,
    RouteConfiguration,
    VirtualHost,
    WeightedChoice,
    WeightedCluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.api import DecodeContext, Decoded
    from proxyless.xds.parsing.http_filters import FilterParsers
    from proxyless.xds.parsing.plugins import PluginParsers
    from proxyless.xds.resources.matcher import Fraction, HeaderMatcher, PathMatcher
    from proxyless.xds.resources.route import ClusterSpecifierPlugin, RetryOnPolicy

T = TypeVar("T")

ROUTE_CONFIGURATION: Final = "envoy.config.route.v3.RouteConfiguration"

# "Use of the RDS auto_host_rewrite field will be guarded" - A81, until interop tests pass.
AUTHORITY_REWRITE_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"

Choice = ClusterChoice | WeightedChoice | PluginChoice


@frozen
class RouteContext:
    """What the meaning of routes depends on, beside their bytes."""

    filters: FilterParsers
    plugins: PluginParsers = field(default_factory=lambda: NO_PLUGINS)
    # Whether the server may have authorities rewritten, and nobody has turned that off (A81, D44).
    may_rewrite: bool = False


def may_rewrite_authority(server: ServerConfig, environ: Mapping[str, str]) -> bool:
    """Whether what this server says about the authority of RPCs counts."""
    is_on = environ.get(AUTHORITY_REWRITE_GUARD, "").strip().lower() != "false"
    return server.is_trusted and is_on


class RouteConfigurationType:
    """RDS resources. Driven by the xDS client."""

    type_url: Final = TYPE_URL_PREFIX + ROUTE_CONFIGURATION
    is_full_state: Final = False

    def __init__(self, filters: FilterParsers, plugins: PluginParsers = NO_PLUGINS) -> None:
        self._filters: Final = filters
        self._plugins: Final = plugins
        self._memory: Final = PartMemory[Route]()

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[RouteConfiguration]:
        """The routes in these bytes, or why there are none. Raises nothing."""
        may_rewrite = may_rewrite_authority(context.server, os.environ)
        routes = RouteContext(self._filters, self._plugins, may_rewrite)
        return decode_resource(
            ROUTE_CONFIGURATION,
            serialized,
            lambda message, errors: parse_route_configuration(
                message, routes, errors, self._memory
            ),
        )


def parse_route_configuration(
    message: Proto,
    context: RouteContext,
    errors: ValidationErrors,
    memory: PartMemory[Route] | None = None,
) -> RouteConfiguration:
    """A RouteConfiguration. It counts only if no error was added.

    The memory spares parsing routes that are as they were; it belongs to one choice of filters and
    plugins.
    """
    if memory is None:
        return _Parser(context, errors, {}).parse(message)
    key = (message.name, context.may_rewrite)
    parser = _Parser(context, errors, memory.parts_of(key))
    resource = parser.parse(message)
    if errors.ok:
        memory.keep(key, parser.parts)
    return resource


class _Parser:
    """Walks one RouteConfiguration. Driven by `parse_route_configuration`, once.

    Methods that return None for a route drop it; an error may or may not have been added.
    """

    def __init__(
        self, context: RouteContext, errors: ValidationErrors, remembered: Mapping[bytes, Route]
    ) -> None:
        self._context: Final = context
        self._errors: Final = errors
        # Valid routes by their bytes: of the last version, and of this one.
        self._remembered: Final = remembered
        self.parts: Final[dict[bytes, Route]] = {}
        # Equal parts are one object: tables of thousands of routes repeat few of them.
        self._shared: Final[dict[Hashable, object]] = {}
        # By name. None is a plugin that is not known, but optional.
        self._plugins: dict[str, ClusterSpecifierPlugin | None] = {}
        self._plugins_used: Final[set[str]] = set()
        self._routes_left = ROUTES_MAX

    def parse(self, message: Proto) -> RouteConfiguration:
        errors = self._errors
        with errors.field("cluster_specifier_plugins"):
            self._plugins = parse_plugins(
                message.cluster_specifier_plugins, self._context.plugins, errors
            )
        hosts: list[VirtualHost] = []
        with errors.field("virtual_hosts"):
            if check_count(message.virtual_hosts, VIRTUAL_HOSTS_MAX, errors):
                for index, host in enumerate(message.virtual_hosts):
                    with errors.index(index):
                        hosts.append(self._parse_virtual_host(host))
        plugins = (p for p in self._plugins.values() if p and p.name in self._plugins_used)
        return RouteConfiguration(
            name=message.name, virtual_hosts=tuple(hosts), plugins=tuple(plugins)
        )

    def _parse_virtual_host(self, host: Proto) -> VirtualHost:
        errors = self._errors
        with errors.field("domains"):
            _check_domains(host.domains, errors)
        retry = self._parse_retry(host)
        return VirtualHost(
            name=host.name,
            domains=tuple(host.domains),
            routes=self._parse_routes(host.routes),
            retry=retry if retry is not None and retry.codes else None,
            filter_overrides=parse_filter_overrides(
                host.typed_per_filter_config, self._context.filters, errors
            ),
        )

    def _parse_routes(self, messages: Sequence[Proto]) -> tuple[Route, ...]:
        errors = self._errors
        routes: list[Route] = []
        with errors.field("routes"):
            if check_count(messages, self._routes_left, errors):
                self._routes_left -= len(messages)
                for index, message in enumerate(messages):
                    route = self._recall_route(message, index)
                    if route is not None:
                        routes.append(route)
        return tuple(routes)

    def _recall_route(self, message: Proto, index: int) -> Route | None:
        """The route, which is parsed only if no equal one is known."""
        serialized = message.SerializeToString()
        route = self._remembered.get(serialized) or self.parts.get(serialized)
        errors_before = self._errors.count
        if route is None:
            with self._errors.index(index):
                route = self._parse_route(message)
            # A route to a plugin depends on more than its own bytes.
            if route is None or self._errors.count > errors_before or _names_plugin(route):
                return route
        self.parts[serialized] = route
        return route

    def _parse_route(self, message: Proto) -> Route | None:
        errors = self._errors
        if not message.HasField("match"):
            with errors.field("match"):
                errors.add("is unset")
            return None
        match = message.match
        # "query_parameters drops the route" (A28-04)
        if match.query_parameters:
            return None
        with errors.field("match"):
            path = self._parse_path(match)
            headers = self._parse_headers(match.headers) if match.headers else ()
            fraction = self._parse_fraction(match)
        if path is None:
            return None
        action = self._parse_action(message)
        if action is None:
            return None
        overrides = parse_filter_overrides(
            message.typed_per_filter_config, self._context.filters, errors
        )
        return Route(
            path=path,
            headers=headers,
            fraction=fraction,
            action=action,
            filter_overrides=overrides,
            name=message.name,
        )

    # What a route matches

    def _parse_path(self, match: Proto) -> PathMatcher | None:
        path = parse_path_matcher(match, self._errors)
        if path is None or not can_match_a_method(path):
            return None
        return self._share(path)

    def _parse_headers(self, messages: Sequence[Proto]) -> tuple[HeaderMatcher, ...]:
        errors = self._errors
        headers: list[HeaderMatcher] = []
        with errors.field("headers"):
            if not check_count(messages, HEADERS_MAX, errors):
                return ()
            for index, message in enumerate(messages):
                with errors.index(index):
                    header = self._parse_shared(message, parse_header_matcher)
                if header is not None:
                    headers.append(header)
        return tuple(headers)

    def _parse_fraction(self, match: Proto) -> Fraction | None:
        if not match.HasField("runtime_fraction"):
            return None
        with self._errors.field("runtime_fraction"):
            return parse_runtime_fraction(match.runtime_fraction, self._errors)

    def _share(self, value: T) -> T:
        return cast("T", self._shared.setdefault(value, value))

    def _parse_shared(self, message: Proto, parse: Callable[[Proto, ValidationErrors], T]) -> T:
        """What `parse` makes of the message, which it is asked only once for equal ones."""
        key = (parse, message.SerializeToString())
        known = self._shared.get(key)
        if known is not None:
            return cast("T", known)
        errors_before = self._errors.count
        value = parse(message, self._errors)
        if self._errors.count == errors_before:
            self._shared[key] = value
        return value

    # What a route does

    def _parse_action(self, message: Proto) -> RouteAction | NonForwardingAction | None:
        kind = message.WhichOneof("action")
        if kind != "route":
            return NonForwardingAction(kind or "unset")
        with self._errors.field("route"):
            choice = self._parse_choice(message.route)
            return None if choice is None else self._parse_route_action(message.route, choice)

    def _parse_route_action(self, action: Proto, choice: Choice) -> RouteAction:
        errors = self._errors
        has_max_stream_duration = action.HasField("max_stream_duration")
        max_stream_duration_s = grpc_timeout_header_max_s = None
        if has_max_stream_duration:
            limits = action.max_stream_duration
            with errors.field("max_stream_duration"):
                max_stream_duration_s = read_duration_s(limits, "max_stream_duration", errors)
                grpc_timeout_header_max_s = read_duration_s(
                    limits, "grpc_timeout_header_max", errors
                )
        return RouteAction(
            choice=choice,
            timeout_s=read_duration_s(action, "timeout", errors),
            max_grpc_timeout_s=read_duration_s(action, "max_grpc_timeout", errors),
            has_max_stream_duration=has_max_stream_duration,
            max_stream_duration_s=max_stream_duration_s,
            grpc_timeout_header_max_s=grpc_timeout_header_max_s,
            retry=self._parse_retry(action),
            hash_policies=parse_hash_policies(action.hash_policy, errors),
            # "if the trusted_xds_server server option is present" - A81
            auto_host_rewrite=self._context.may_rewrite and action.auto_host_rewrite.value,
        )

    def _parse_retry(self, holder: Proto) -> RetryOnPolicy | None:
        """Of a virtual host or a route action; None if it says nothing about retries."""
        if not holder.HasField("retry_policy"):
            return None
        with self._errors.field("retry_policy"):
            return self._parse_shared(holder.retry_policy, parse_retry)

    def _parse_choice(self, action: Proto) -> Choice | None:
        errors = self._errors
        match action.WhichOneof("cluster_specifier"):
            case "cluster":
                if not action.cluster:
                    with errors.field("cluster"):
                        errors.add("is empty, wanted the name of a cluster")
                return self._share(ClusterChoice(action.cluster))
            case "weighted_clusters":
                with errors.field("weighted_clusters"):
                    return self._parse_weighted_clusters(action.weighted_clusters)
            case "cluster_specifier_plugin":
                with errors.field("cluster_specifier_plugin"):
                    return self._parse_plugin_choice(action.cluster_specifier_plugin)
            case _:
                # "Unsupported cluster specifier drops that route" (A28-05)
                return None

    def _parse_plugin_choice(self, name: str) -> PluginChoice | None:
        if name not in self._plugins:
            self._errors.add(f"is {name!r}, wanted one of the cluster_specifier_plugins")
            return None
        if self._plugins[name] is None:
            return None
        self._plugins_used.add(name)
        return PluginChoice(name)

    def _parse_weighted_clusters(self, weighted: Proto) -> WeightedChoice:
        errors = self._errors
        clusters: list[WeightedCluster] = []
        errors_before = errors.count
        with errors.field("clusters"):
            if check_count(weighted.clusters, WEIGHTED_CLUSTERS_MAX, errors):
                for index, message in enumerate(weighted.clusters):
                    with errors.index(index):
                        cluster = self._parse_weighted_cluster(message)
                    if cluster is not None:
                        clusters.append(cluster)
        total = sum(cluster.weight for cluster in clusters)
        if total > UINT32_MAX:
            errors.add(f"has weights of {total} in all, wanted at most {UINT32_MAX}")
        if not clusters and errors.count == errors_before:
            errors.add("has no cluster with a weight above 0")
        return WeightedChoice(tuple(clusters))

    def _parse_weighted_cluster(self, message: Proto) -> WeightedCluster | None:
        errors = self._errors
        if not message.name:
            with errors.field("name"):
                errors.add("is empty, wanted the name of a cluster")
        weight = read_uint32(message, "weight")
        if weight is None:
            with errors.field("weight"):
                errors.add("is unset")
        # "zero-weight entries skipped" (A28-05)
        if not weight:
            return None
        overrides = parse_filter_overrides(
            message.typed_per_filter_config, self._context.filters, errors
        )
        return WeightedCluster(message.name, weight, overrides)


def _names_plugin(route: Route) -> bool:
    return isinstance(route.action, RouteAction) and isinstance(route.action.choice, PluginChoice)


def _check_domains(domains: Sequence[str], errors: ValidationErrors) -> None:
    if not domains:
        errors.add("is empty, wanted at least one domain")
    if not check_count(domains, DOMAINS_MAX, errors):
        return
    for index, domain in enumerate(domains):
        if not _is_domain_pattern(domain):
            with errors.index(index):
                errors.add(f"is {domain!r}, wanted a name with at most one '*', first or last")


def _is_domain_pattern(domain: str) -> bool:
    stars = domain.count("*")
    if stars == 0:
        return bool(domain)
    return stars == 1 and (domain[0] == "*" or domain[-1] == "*")
