"""The asyncio edge of `wire`: sockets, TLS, timers.

connector  Connector: an address becomes a ClientTransport, or a Status that says why not
client     ClientTransport: what calls are opened on; keepalive
calls      UnaryCall, StreamingCall: calls on one connection, without a channel
server     Server: a small gRPC server on our own wire, for simulation and tests
pump       Pump: one socket, one wire connection, one write per turn of the loop
keepalive  whether to ask the peer if it is still there (pure)
tls        contexts, ALPN, and who the peer is
"""

from proxyless.transport.calls import StreamingCall, UnaryCall
from proxyless.transport.client import ClientTransport, TransportOptions
from proxyless.transport.connector import Connector
from proxyless.transport.keepalive import KeepaliveConfig
from proxyless.transport.server import Server, ServerCall
from proxyless.transport.tls import (
    CheckPeer,
    ClientTls,
    PeerCertificate,
    TlsSource,
    client_context,
    server_context,
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
    "StreamingCall",
    "TlsSource",
    "TransportOptions",
    "UnaryCall",
    "client_context",
    "server_context",
]
