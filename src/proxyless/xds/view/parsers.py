"""Parsers of resource messages and of single messages in them, for lint."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base import ValidationErrors
from proxyless.xds.client import DecodeContext
from proxyless.xds.parsing import (
    ClusterType,
    RouteContext,
    parse_listener,
    parse_route_configuration,
)
from proxyless.xds.parsing.cluster import CLUSTER
from proxyless.xds.parsing.endpoint import (
    CLUSTER_LOAD_ASSIGNMENT,
    HEALTH_STATUSES,
    LB_ENDPOINT,
    parse_endpoint,
    parse_endpoints,
)
from proxyless.xds.parsing.lb_policy import DEFAULT_CONVERSIONS
from proxyless.xds.parsing.matchers import can_match_a_method, parse_path_matcher
from proxyless.xds.parsing.route import LISTENER, ROUTE_CONFIGURATION, may_rewrite_authority
from proxyless.xds.parsing.route_policies import parse_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.lb import PolicyRegistry
    from proxyless.protos import Proto
    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.filters import FilterRegistry
    from proxyless.xds.resources import RetryOnPolicy

Parse: TypeAlias = "Callable[[Proto, ValidationErrors], object]"

# Full names of the supported messages in a cluster's load_balancing_policy.
LB_POLICY_TYPES: Final = frozenset(conversion.type_name for conversion in DEFAULT_CONVERSIONS)


def message_parsers(
    policies: PolicyRegistry, filters: FilterRegistry, bootstrap: Bootstrap
) -> Mapping[str, Parse]:
    """Parsers by full name of message, for resources from the bootstrap's first server."""
    decode = DecodeContext(bootstrap.servers[0], bootstrap)
    may_rewrite = may_rewrite_authority(decode.server, os.environ)
    routes = RouteContext(filters, may_rewrite=may_rewrite)
    clusters = ClusterType(policies)
    return {
        LISTENER: lambda message, errors: parse_listener(message, routes, errors),
        ROUTE_CONFIGURATION: lambda message, errors: parse_route_configuration(
            message, routes, errors
        ),
        CLUSTER: lambda message, errors: clusters.parse(message, errors, decode),
        CLUSTER_LOAD_ASSIGNMENT: parse_endpoints,
        LB_ENDPOINT: partial(parse_endpoint, has_proxies=True),
    }


def is_usable_health(status: int) -> bool:
    """Whether endpoints with this health_status are used."""
    return status in HEALTH_STATUSES


def unmatchable_path(match: Proto) -> str | None:
    """The path of a RouteMatch if it matches no method (A28-02)."""
    path = parse_path_matcher(match, ValidationErrors())
    return None if path is None or can_match_a_method(path) else path.value


def read_retry(policy: Proto) -> RetryOnPolicy:
    """Parse the valid parts of a RetryPolicy."""
    return parse_retry(policy, ValidationErrors())
