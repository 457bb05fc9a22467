"""LDS resources: the routes and HTTP filters of a target.

Specs: A27 (API listener), A31 (D20: the stream duration of the connection manager), A39 (filters).
"""

from proxyless.base.frozen import frozen
from proxyless.xds.resources.filter import HttpFilter
from proxyless.xds.resources.route import RouteConfiguration


@frozen
class HttpConnectionManager:
    """Routes and HTTP filters of a listener."""

    # The name of an RDS resource, or inline routes.
    routes: str | RouteConfiguration
    http_filters: tuple[HttpFilter, ...] = ()
    # common_http_protocol_options.max_stream_duration; None if unset. 0: no limit.
    max_stream_duration_s: float | None = None


@frozen
class Listener:
    """An LDS resource."""

    name: str
    # None for a socket listener, a valid resource that a client cannot use (A27-20).
    api_listener: HttpConnectionManager | None
