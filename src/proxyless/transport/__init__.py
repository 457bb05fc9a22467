"""Transports: HTTP/2 connections of `wire` on asyncio sockets, with TLS and timers.

connector  Connector: connects to an address; a ClientTransport or a Status
attempt    attempts to connect, with callbacks only or with a task
client     ClientTransport: a client's connection; keepalive
server     Server: a small gRPC server on our own wire, for simulation and tests
pump       Pump: one socket, one wire connection, one write per turn of the loop
keepalive  when to send a keepalive PING (pure)
tls        TLS contexts, ALPN, and checks of the peer's certificate
server_names  host names and addresses that a certificate is valid for (pure)
tunnel     a connection through an HTTP proxy
http_connect  CONNECT requests and responses (pure)
key_files  path for a private key in memory
tls_sessions  cache of TLS sessions, for resumption
spiffe     SPIFFE verification: roots by trust domain
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.transport.client import ClientTransport, TransportOptions
from proxyless.transport.connector import Connector
from proxyless.transport.keepalive import KeepaliveConfig

if TYPE_CHECKING:
    from proxyless.transport.server import Server, ServerCall
    from proxyless.transport.spiffe import TrustBundles
    from proxyless.transport.tls import (
        CheckPeer,
        ClientTls,
        PeerCertificate,
        TlsSource,
        client_context,
    )
    from proxyless.transport.tls_sessions import TlsSessions
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "CheckPeer": "tls",
            "ClientTls": "tls",
            "PeerCertificate": "tls",
            # For simulations and tests.
            "Server": "server",
            "ServerCall": "server",
            "TlsSessions": "tls_sessions",
            "TlsSource": "tls",
            "TrustBundles": "spiffe",
            "client_context": "tls",
        },
    )

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
