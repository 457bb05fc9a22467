"""The asyncio edge of `wire`: sockets, TLS, timers.

connector  Connector: an address becomes a ClientTransport, or a Status that says why not
client     ClientTransport: what calls are opened on; keepalive
server     Server: a small gRPC server on our own wire, for simulation and tests
pump       Pump: one socket, one wire connection, one write per turn of the loop
keepalive  whether to ask the peer if it is still there (pure)
tls        contexts, ALPN, and who the peer is
names      for which hosts a certificate speaks (pure)
tunnel     a connection through an HTTP proxy
http_connect  what is said to a proxy, and what it answers (pure)
tls_sessions  sessions of earlier connections, which later ones resume
spiffe     whose roots count for a peer, by its trust domain
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.transport.client import ClientTransport, TransportOptions
from proxyless.transport.connector import Connector
from proxyless.transport.keepalive import KeepaliveConfig
from proxyless.transport.spiffe import TrustBundles
from proxyless.transport.tls import (
    CheckPeer,
    ClientTls,
    PeerCertificate,
    TlsSource,
    client_context,
)
from proxyless.transport.tls_sessions import TlsSessions

if TYPE_CHECKING:
    from proxyless.transport.server import Server, ServerCall
else:
    # For simulations and tests.
    __getattr__ = lazy_exports(__name__, {"Server": "server", "ServerCall": "server"})

__all__ = [
    "CheckPeer",
    "ClientTls",
    "ClientTransport",
    "Connector",
    "KeepaliveConfig",
    "PeerCertificate",
    "Server",
    "ServerCall",
    "TlsSessions",
    "TlsSource",
    "TransportOptions",
    "TrustBundles",
    "client_context",
]
