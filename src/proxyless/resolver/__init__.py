"""Where are the endpoints behind a target?

api       what a channel and a resolver say to each other
registry  ResolverRegistry: which schemes a channel knows
target    how a target's text is read: scheme, authority, name; host and port
dns       names, looked up through the Network; when to look up again
http_proxy  ProxiedFactory: the same behind an HTTP proxy, which looks the name up
polling   what has to be looked at again and again
static    addresses that stand in the target: ipv4, ipv6, unix, unix-abstract
unresolvable  stand-ins for targets that cannot be resolved

The scheme `xds` is not here: its resolver needs the room above. No resolver ever sees the channel.
"""

from proxyless.resolver.api import (
    Resolver,
    ResolverContext,
    ResolverFactory,
    ResolverListener,
    ResolverResult,
)
from proxyless.resolver.dns import DnsFactory
from proxyless.resolver.http_proxy import ProxiedFactory, parse_proxy_uri
from proxyless.resolver.polling import PollingResolver
from proxyless.resolver.registry import ResolverRegistry
from proxyless.resolver.static import (
    STATIC_FACTORIES,
    StaticFactory,
    StaticResolver,
)
from proxyless.resolver.target import Target, encode_authority, parse_host_port, parse_target

__all__ = [
    "STATIC_FACTORIES",
    "DnsFactory",
    "PollingResolver",
    "ProxiedFactory",
    "Resolver",
    "ResolverContext",
    "ResolverFactory",
    "ResolverListener",
    "ResolverRegistry",
    "ResolverResult",
    "StaticFactory",
    "StaticResolver",
    "Target",
    "encode_authority",
    "parse_host_port",
    "parse_proxy_uri",
    "parse_target",
]
