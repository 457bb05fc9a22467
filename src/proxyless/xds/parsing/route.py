"""RDS: parser of RouteConfiguration resources.

Specs: A28 (virtual hosts, matches, weights), A31 and D20 (timeouts), A39 (overrides),
A81 (auto_host_rewrite). Retries and hash policies are in `route_policies`.

An invalid field is an error. A route that needs an unsupported feature is dropped without an error,
so that one control plane can serve clients of several versions.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen, replace
from proxyless.runtime.work_queue import STEP_UNITS, finish
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
from proxyless.xds.parsing.part_cache import PartCache
from proxyless.xds.parsing.plugins import NO_PLUGINS, parse_plugins
from proxyless.xds.parsing.proto_fields import (
    UINT32_MAX,
    add_error,
    check_count,
    parse_list,
    read_duration_s,
    read_uint32,
)
from proxyless.xds.parsing.route_policies import (
    parse_hash_policies,
    parse_mirror_policies,
    parse_retry,
)
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
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.api import DecodeContext, Decoded
    from proxyless.xds.parsing.http_filters import FilterParsers
    from proxyless.xds.parsing.plugins import PluginParsers
    from proxyless.xds.resources.filter import FilterOverrides
    from proxyless.xds.resources.matcher import Fraction, HeaderMatcher, PathMatcher
    from proxyless.xds.resources.route import ClusterSpecifierPlugin, RetryOnPolicy

T = TypeVar("T")

LISTENER: Final = "envoy.config.listener.v3.Listener"
ROUTE_CONFIGURATION: Final = "envoy.config.route.v3.RouteConfiguration"
# Type URLs of the resources that name clusters, and so endpoints.
ROUTING_TYPES: Final = (TYPE_URL_PREFIX + LISTENER, TYPE_URL_PREFIX + ROUTE_CONFIGURATION)

# "Use of the RDS auto_host_rewrite field will be guarded" - A81, until interop tests pass.
AUTHORITY_REWRITE_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"

Choice = ClusterChoice | WeightedChoice | PluginChoice

# Work (`ValidationErrors.work`).
_VIRTUAL_HOST_WORK: Final = 10
_ROUTE_WORK: Final = 12
_HEADER_WORK: Final = 3
_CACHED_WORK: Final = 2
_BYTES_PER_WORK: Final = 32
_DOMAINS_PER_STEP: Final = 1_000


@frozen
class RouteContext:
    """Settings for parsing routes."""

    filters: FilterParsers
    plugins: PluginParsers = field(default_factory=lambda: NO_PLUGINS)
    # Whether auto_host_rewrite is used: the server is trusted and the guard is on (A81, D44).
    may_rewrite: bool = False
    # Routes of the last versions, parsed with these filters and plugins.
    cache: PartCache[Route] | None = None

    def for_server(self, server: ServerConfig) -> RouteContext:
        """These settings for resources that this server sent."""
        return replace(self, may_rewrite=may_rewrite_authority(server, os.environ))


def may_rewrite_authority(server: ServerConfig, environ: Mapping[str, str]) -> bool:
    """Whether the auto_host_rewrite of this server's routes is used."""
    return server.is_trusted and read_flag(environ, AUTHORITY_REWRITE_GUARD, default=True)


class RouteConfigurationType:
    """The RDS resource type."""

    type_url: Final = TYPE_URL_PREFIX + ROUTE_CONFIGURATION
    is_full_state: Final = False
    named_by: Final = (TYPE_URL_PREFIX + LISTENER,)

    def __init__(self, filters: FilterParsers, plugins: PluginParsers = NO_PLUGINS) -> None:
        self._context: Final = RouteContext(filters, plugins, cache=PartCache())

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[RouteConfiguration]:
        return finish(self.decode_in_steps(serialized, context))

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Steps[Decoded[RouteConfiguration]]:
        routes = self._context.for_server(context.server)
        return decode_resource(
            ROUTE_CONFIGURATION,
            serialized,
            lambda message, errors: parse_routes_in_steps(message, routes, errors),
        )


def parse_route_configuration(
    message: Proto, context: RouteContext, errors: ValidationErrors
) -> RouteConfiguration:
    """A RouteConfiguration message. The result is valid only if no error was added."""
    return finish(parse_routes_in_steps(message, context, errors))


def parse_routes_in_steps(
    message: Proto, context: RouteContext, errors: ValidationErrors
) -> Steps[RouteConfiguration]:
    """Like `parse_route_configuration`; yields the work of each step."""
    cache = context.cache
    key = (message.name, context.may_rewrite)
    parser = _RouteConfigurationParser(context, errors, {} if cache is None else cache.get(key))
    resource = yield from parser.parse(message)
    if cache is not None and errors.ok:
        cache.put(key, parser.parsed)
    return resource


class _RouteConfigurationParser:
    """Parser of one RouteConfiguration.

    A method that returns None for a route drops it, with or without an error.
    """

    def __init__(
        self, context: RouteContext, errors: ValidationErrors, cached: Mapping[bytes, Route]
    ) -> None:
        self._context: Final = context
        self._errors: Final = errors
        # Valid routes by their bytes: those of the last version, and those of this one.
        self._cached: Final = cached
        self.parsed: Final[dict[bytes, Route]] = {}
        # Equal matchers and policies are one object: large route tables repeat few of them.
        self._shared: Final[dict[Hashable, object]] = {}
        # By name. None is an optional plugin that is not supported.
        self._plugins: dict[str, ClusterSpecifierPlugin | None] = {}
        self._plugins_used: Final[set[str]] = set()
        self._routes_left = ROUTES_MAX
        self._domains_left = DOMAINS_MAX

    def parse(self, message: Proto) -> Steps[RouteConfiguration]:
        errors = self._errors
        with errors.field("cluster_specifier_plugins"):
            self._plugins = parse_plugins(
                message.cluster_specifier_plugins, self._context.plugins, errors
            )
        with errors.field("virtual_hosts"):
            hosts = yield from self._parse_virtual_hosts(message.virtual_hosts)
        plugins = (p for p in self._plugins.values() if p and p.name in self._plugins_used)
        return RouteConfiguration(name=message.name, virtual_hosts=hosts, plugins=tuple(plugins))

    def _parse_virtual_hosts(self, messages: Sequence[Proto]) -> Steps[tuple[VirtualHost, ...]]:
        errors = self._errors
        hosts: list[VirtualHost] = []
        if not check_count(messages, VIRTUAL_HOSTS_MAX, errors):
            return ()
        for index, message in enumerate(messages):
            with errors.index(index):
                host = yield from self._parse_virtual_host(message)
            hosts.append(host)
            if errors.is_full:
                break
        return tuple(hosts)

    def _parse_virtual_host(self, host: Proto) -> Steps[VirtualHost]:
        errors = self._errors
        errors.work += _VIRTUAL_HOST_WORK
        with errors.field("domains"):
            if check_count(host.domains, self._domains_left, errors):
                self._domains_left -= len(host.domains)
                yield from _check_domains(host.domains, errors)
        retry = self._parse_retry(host)
        return VirtualHost(
            name=host.name,
            domains=tuple(host.domains),
            routes=(yield from self._parse_routes(host.routes)),
            retry=retry if retry is not None and retry.codes else None,
            filter_overrides=self._parse_overrides(host),
        )

    def _parse_routes(self, messages: Sequence[Proto]) -> Steps[tuple[Route, ...]]:
        errors = self._errors
        routes: list[Route] = []
        with errors.field("routes"):
            if check_count(messages, self._routes_left, errors):
                self._routes_left -= len(messages)
                for index, message in enumerate(messages):
                    if errors.work >= STEP_UNITS:
                        yield errors.take_work()
                        if errors.is_full:
                            break
                    serialized = message.SerializeToString()
                    route = self._cached.get(serialized) or self.parsed.get(serialized)
                    if route is None:
                        errors.work += _ROUTE_WORK + len(serialized) // _BYTES_PER_WORK
                        with errors.index(index):
                            route = yield from self._parse_new_route(message, serialized)
                    else:
                        errors.work += _CACHED_WORK
                        self.parsed[serialized] = route
                    if route is not None:
                        routes.append(route)
        return tuple(routes)

    def _parse_new_route(self, message: Proto, serialized: bytes) -> Steps[Route | None]:
        errors_before = self._errors.count
        route = yield from self._parse_route(message)
        # A route to a plugin is not cached: it depends on the plugin's config, too.
        is_valid = route is not None and self._errors.count == errors_before
        if route is not None and is_valid and not _names_plugin(route):
            self.parsed[serialized] = route
        return route

    def _parse_route(self, message: Proto) -> Steps[Route | None]:
        errors = self._errors
        if not message.HasField("match"):
            add_error(errors, "match", "is unset")
            return None
        match = message.match
        # "query_parameters drops the route" - A28-19
        if match.query_parameters:
            return None
        with errors.field("match"):
            path = self._parse_path(match)
            headers = (yield from self._parse_headers(match.headers)) if match.headers else ()
            fraction = self._parse_fraction(match)
        if path is None:
            return None
        action = self._parse_action(message)
        if action is None:
            return None
        return Route(
            path=path,
            headers=headers,
            fraction=fraction,
            action=action,
            filter_overrides=self._parse_overrides(message),
            name=message.name,
        )

    def _parse_overrides(self, owner: Proto) -> FilterOverrides:
        return parse_filter_overrides(
            owner.typed_per_filter_config, self._context.filters, self._errors
        )

    # Matches

    def _parse_path(self, match: Proto) -> PathMatcher | None:
        path = parse_path_matcher(match, self._errors)
        if path is None or not can_match_a_method(path):
            return None
        return self._share(path)

    def _parse_headers(self, messages: Sequence[Proto]) -> Steps[tuple[HeaderMatcher, ...]]:
        errors = self._errors
        headers: list[HeaderMatcher] = []
        with errors.field("headers"):
            if check_count(messages, HEADERS_MAX, errors):
                for index, message in enumerate(messages):
                    with errors.index(index):
                        header = self._parse_shared(message, parse_header_matcher)
                    if header is not None:
                        headers.append(header)
                    errors.work += _HEADER_WORK
                    if errors.work >= STEP_UNITS:
                        yield errors.take_work()
        return tuple(headers)

    def _parse_fraction(self, match: Proto) -> Fraction | None:
        if not match.HasField("runtime_fraction"):
            return None
        with self._errors.field("runtime_fraction"):
            return parse_runtime_fraction(match.runtime_fraction, self._errors)

    def _share(self, value: T) -> T:
        return cast("T", self._shared.setdefault(value, value))

    def _parse_shared(self, message: Proto, parse: Callable[[Proto, ValidationErrors], T]) -> T:
        """Parse the message, or return the result for an equal one."""
        key = (parse, message.SerializeToString())
        shared = self._shared.get(key)
        if shared is not None:
            return cast("T", shared)
        errors_before = self._errors.count
        value = parse(message, self._errors)
        if self._errors.count == errors_before:
            self._shared[key] = value
        return value

    # Actions

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
            mirrors=parse_mirror_policies(action.request_mirror_policies, errors),
        )

    def _parse_retry(self, holder: Proto) -> RetryOnPolicy | None:
        """The retry_policy of a virtual host or a route action; None if it is unset."""
        if not holder.HasField("retry_policy"):
            return None
        with self._errors.field("retry_policy"):
            return self._parse_shared(holder.retry_policy, parse_retry)

    def _parse_choice(self, action: Proto) -> Choice | None:
        errors = self._errors
        match action.WhichOneof("cluster_specifier"):
            case "cluster":
                if not action.cluster:
                    add_error(errors, "cluster", "is empty, wanted the name of a cluster")
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
        errors_before = errors.count
        with errors.field("clusters"):
            clusters = parse_list(
                weighted.clusters, WEIGHTED_CLUSTERS_MAX, self._parse_weighted_cluster, errors
            )
        total = sum(cluster.weight for cluster in clusters)
        if total > UINT32_MAX:
            errors.add(f"has weights of {total} in all, wanted at most {UINT32_MAX}")
        if not clusters and errors.count == errors_before:
            errors.add("has no cluster with a weight above 0")
        return WeightedChoice(clusters)

    def _parse_weighted_cluster(
        self, message: Proto, errors: ValidationErrors
    ) -> WeightedCluster | None:
        if not message.name:
            add_error(errors, "name", "is empty, wanted the name of a cluster")
        weight = read_uint32(message, "weight")
        if weight is None:
            add_error(errors, "weight", "is unset")
        # "zero-weight entries skipped" - A28-21
        if not weight:
            return None
        return WeightedCluster(message.name, weight, self._parse_overrides(message))


def _names_plugin(route: Route) -> bool:
    return isinstance(route.action, RouteAction) and isinstance(route.action.choice, PluginChoice)


def _check_domains(domains: Sequence[str], errors: ValidationErrors) -> Steps[None]:
    if not domains:
        errors.add("is empty, wanted at least one domain")
    for index, domain in enumerate(domains):
        if not index % _DOMAINS_PER_STEP:
            if index:
                errors.work += STEP_UNITS
            if errors.work >= STEP_UNITS:
                yield errors.take_work()
        if not _is_domain_pattern(domain):
            with errors.index(index):
                errors.add(f"is {domain!r}, wanted a name with at most one '*', first or last")


def _is_domain_pattern(domain: str) -> bool:
    stars = domain.count("*")
    if stars == 0:
        return bool(domain)
    return stars == 1 and (domain[0] == "*" or domain[-1] == "*")
