"""gRPC over HTTP/2 without I/O: bytes go in, listeners are called, bytes come out.

client      ClientConnection opens calls; ClientStream is one
server      ServerConnection takes calls: what simulated backends and tests need
connection  what both roles share: frames, settings, windows, floods, GOAWAY
stream      states of one stream, and what it sends and receives
flow        windows both ways, and the one place where bytes leave (Outbound)
headers     what header blocks mean: requests, response heads, trailers, timeouts
hpack       header fields as bytes, remembered in both directions
messages    length-prefixed messages and their compression
status      which gRPC status an answer of the wire means
frames      the layout of HTTP/2 frames
limits      what a peer may make us hold or do, every number by name
errors      who broke the protocol

Specs: RFC 9113, RFC 7541, gRPC over HTTP/2. The asyncio edge is the room `transport`.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.wire.client import CallListener, ClientConnection, ClientStream
from proxyless.wire.connection import ConnectionListener
from proxyless.wire.errors import ErrorCode, RemoteProtocolError, UsageError, WireError
from proxyless.wire.headers import IDENTITY, RequestBlock, RequestEncoder, ResponseBlock
from proxyless.wire.limits import Limits
from proxyless.wire.messages import ENCODINGS, compress
from proxyless.wire.status import StreamEnd

if TYPE_CHECKING:
    from proxyless.wire.server import (
        HandlerListener,
        ServerConnection,
        ServerListener,
        ServerStream,
    )
else:
    _SERVER = ("HandlerListener", "ServerConnection", "ServerListener", "ServerStream")
    __getattr__ = lazy_exports(__name__, dict.fromkeys(_SERVER, "server"))

__all__ = [
    "ENCODINGS",
    "IDENTITY",
    "CallListener",
    "ClientConnection",
    "ClientStream",
    "ConnectionListener",
    "ErrorCode",
    "HandlerListener",
    "Limits",
    "RemoteProtocolError",
    "RequestBlock",
    "RequestEncoder",
    "ResponseBlock",
    "ServerConnection",
    "ServerListener",
    "ServerStream",
    "StreamEnd",
    "UsageError",
    "WireError",
    "compress",
]
