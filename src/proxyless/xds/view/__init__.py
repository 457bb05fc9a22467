"""Read-only queries of the xDS stack, for explanations, lint and CSDS.

With the values of `resources`, `bootstrap` and `error_texts`, all of `xds` that `observe` and `cli`
may import (`make layers`). Queries call the functions that RPCs and the xDS client use.

routing   routes of a config, their timeouts, retries and HTTP filters, keys of LB policies
sessions  session of an RPC, and the choice of its host
targets   state of a running target, and resources of the xDS clients
parsers   parsers of resource messages, and of single messages in them
offline   config of a target without a control plane
"""

from proxyless.xds.bootstrap.resource_names import collection_of
from proxyless.xds.client import DecodeContext, ResourceDump, ResourceStatus, XdsClients
from proxyless.xds.client.api import NoAnswer, ServerView
from proxyless.xds.client.codec import USER_AGENT_NAME
from proxyless.xds.config import ClusterConfig, ClusterError, ClusterResult, XdsConfig
from proxyless.xds.config.dependency_manager import ResourceTypes
from proxyless.xds.config.plan import ConfigError, ConfigTarget, Missing, Plan
from proxyless.xds.config.virtual_hosts import best_domain
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.lb.override_host.choice import Verdict
from proxyless.xds.parsing.http_proxy import HTTP_CONNECT_GUARD, has_http_proxies
from proxyless.xds.resolver import XdsView, resource_types
from proxyless.xds.resolver_options import default_timeout_s
from proxyless.xds.routing.route_table import DEFAULT_TIMEOUT_S, TableRoute
from proxyless.xds.view.offline import find_collection, resolve_offline
from proxyless.xds.view.parsers import (
    LB_POLICY_TYPES,
    Parse,
    is_usable_health,
    message_parsers,
    read_retry,
    unmatchable_path,
)
from proxyless.xds.view.routing import (
    FilterView,
    RoutingView,
    cluster_key,
    picked_cluster,
    plugin_key,
)
from proxyless.xds.view.sessions import OVERRIDE_HOST_POLICY, Session
from proxyless.xds.view.targets import dump_clients, encode_node, view_target
from proxyless.xds.wait_texts import describe_sender, describe_source

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "HTTP_CONNECT_GUARD",
    "LB_POLICY_TYPES",
    "OVERRIDE_HOST_POLICY",
    "USER_AGENT_NAME",
    "ClusterConfig",
    "ClusterError",
    "ClusterResult",
    "ConfigError",
    "ConfigTarget",
    "DecodeContext",
    "FilterRegistry",
    "FilterView",
    "Missing",
    "NoAnswer",
    "Parse",
    "Plan",
    "ResourceDump",
    "ResourceStatus",
    "ResourceTypes",
    "RoutingView",
    "ServerView",
    "Session",
    "TableRoute",
    "Verdict",
    "XdsClients",
    "XdsConfig",
    "XdsView",
    "best_domain",
    "cluster_key",
    "collection_of",
    "default_timeout_s",
    "describe_sender",
    "describe_source",
    "dump_clients",
    "encode_node",
    "find_collection",
    "has_http_proxies",
    "is_usable_health",
    "message_parsers",
    "picked_cluster",
    "plugin_key",
    "read_retry",
    "resolve_offline",
    "resource_types",
    "unmatchable_path",
    "view_target",
]
