"""gRPC over HTTP/2 without I/O: bytes go in, listeners are called, bytes come out.

client      ClientConnection
responses   ClientStream, and the part of ClientConnection that handles responses
server      ServerConnection and ServerStream, for simulated backends and tests
connection  what both roles share: frames, settings, windows, floods, GOAWAY
stream      one stream: sending and receiving of messages
stream_states  states of one direction of a stream
listeners   interface of a connection's owner
flow        windows in both directions, and the output of a connection
headers     header lists of gRPC: requests, response heads, trailers, timeouts
hpack       header blocks and their cache
huffman     Huffman code of header blocks
messages    length-prefixed messages and their compression
status      gRPC status of HTTP statuses, RST_STREAM codes and trailers
frames      layout of HTTP/2 frames
limits      limits of a connection, and flood protection
turns       budget for the work of one turn of the event loop
errors      exceptions and error codes

Specs: RFC 9113, RFC 7541, gRPC over HTTP/2. The package `transport` connects it to sockets.
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
from proxyless.wire.client import ClientConnection
from proxyless.wire.errors import ErrorCode, RemoteProtocolError, UsageError, WireError
from proxyless.wire.headers import IDENTITY, RequestBlock, RequestEncoder, ResponseBlock
from proxyless.wire.limits import Limits
from proxyless.wire.listeners import ConnectionListener
from proxyless.wire.messages import ENCODINGS, compress
from proxyless.wire.responses import CallListener, ClientStream
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
