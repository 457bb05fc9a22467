"""Fake control planes for tests of the xDS client.

`FakeXdsTransports` makes transports to `FakeXdsServer`s. A test sends responses from a server, and
reads the decoded requests of the client. `Text` is a trivial resource type: JSON with name and
value.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxyless.base import OK, Status, StatusCode
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.protos import Proto, message_class
from proxyless.runtime import VirtualClock, WorkQueue, seeded_random
from proxyless.runtime.work_queue import COLLECTION_DELAY_S
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, Node, ServerConfig
from proxyless.xds.client import DecodeContext, Decoded, Tools, XdsClient, XdsClientOptions
from proxyless.xds.client.codec import ADS_PATH, DELTA_PATH
from proxyless.xds.client.lrs_codec import LRS_PATH
from proxyless.xds.error_texts import name_resource, name_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.xds.client.api import ResourceType
    from proxyless.xds.client.last_good import LastGood
    from proxyless.xds.client.transport import StreamListener

GONE = Status(StatusCode.UNAVAILABLE, "connection refused")
WRAPPER_URL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

DiscoveryRequest = message_class("envoy.service.discovery.v3.DiscoveryRequest")
DiscoveryResponse = message_class("envoy.service.discovery.v3.DiscoveryResponse")
DeltaRequest = message_class("envoy.service.discovery.v3.DeltaDiscoveryRequest")
DeltaResponse = message_class("envoy.service.discovery.v3.DeltaDiscoveryResponse")
LoadStatsRequest = message_class("envoy.service.load_stats.v3.LoadStatsRequest")
LoadStatsResponse = message_class("envoy.service.load_stats.v3.LoadStatsResponse")


_REQUESTS = {
    ADS_PATH: DiscoveryRequest,
    DELTA_PATH: DeltaRequest,
    LRS_PATH: LoadStatsRequest,
}


class TextType:
    """Resource type of JSON: {"name": ..., "value": ...}; the value "bad" is invalid."""

    def __init__(self, label: str = "TextType", *, is_full_state: bool = False) -> None:
        self.type_url = f"type.googleapis.com/test.v3.{label}"
        self.label = label
        self.is_full_state = is_full_state
        self.named_by: tuple[str, ...] = ()
        self.decoded = 0

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        self.decoded += 1
        try:
            document = json.loads(serialized)
        except ValueError:
            return Decoded("", error=f"{name_type(self.type_url)}: is not JSON")
        name, value = document["name"], document["value"]
        if value == "bad":
            return Decoded(name, error=f"{name_resource(self.type_url, name)}: value is bad")
        return Decoded(name, value)


LISTENER = "Listener"
ROUTES = "RouteConfiguration"
CLUSTER = "Cluster"


def text(name: str, value: str = "v1") -> bytes:
    return json.dumps({"name": name, "value": value}).encode()


class WatchRecorder:
    """Watcher that records its notifications."""

    def __init__(self, on_notification: Callable[[], None] = lambda: None) -> None:
        self.received: list[Any] = []
        self._on_notification = on_notification

    def on_resource(self, resource: Any) -> None:  # noqa: ANN401
        self.received.append(resource)
        self._on_notification()

    def on_ambient_error(self, status: Status) -> None:
        self.received.append(("ambient", status))
        self._on_notification()

    def take(self) -> list[Any]:
        received, self.received = self.received, []
        return received

    def take_codes(self) -> list[Any]:
        """Take the notifications, with statuses replaced by the names of their codes."""
        return [_code(each) for each in self.take()]


def _code(notification: object) -> object:
    if isinstance(notification, Status):
        return notification.code.name
    if isinstance(notification, tuple):
        return ("ambient", notification[1].code.name)
    return notification


class FakeXdsStream:
    """One stream. Holds the messages that the client sent and those that it has not read."""

    def __init__(self, path: str, listener: StreamListener, clock: VirtualClock) -> None:
        self.path = path
        self._listener = listener
        self._clock = clock
        self.sent: list[bytes] = []
        self.is_connected = False
        self.reads = 0
        self.is_open = True
        # Whether the server reads, and whether its host answers.
        self.is_writable = True
        self.is_alive = True
        # Probes while it does not answer.
        self.unanswered: list[Callable[[], None]] = []
        # Whether a part of a response has come.
        self.is_receiving = False
        # Messages that the client has not requested; the end is delivered after them.
        self._unread: list[bytes] = []
        self._end: Status | None = None

    # Called by the client

    def send(self, message: bytes) -> None:
        if self.is_open:
            self.sent.append(message)

    def probe(self, on_answer: Callable[[], None]) -> None:
        if self.is_alive:
            on_answer()
        else:
            self.unanswered.append(on_answer)

    def read_next(self) -> None:
        if self.is_open:
            self.reads += 1
            self._deliver()

    def close(self) -> None:
        self.is_open = False

    # Called by tests

    def connect(self) -> None:
        """Give the stream a connection."""
        if self.is_open and not self.is_connected:
            self.is_connected = True
            self._listener.on_ready()

    def send_to_client(self, message: bytes) -> None:
        """Send a message, which is delivered when the client requests it."""
        self._unread.append(message)
        self._deliver()

    def _deliver(self) -> None:
        if self._unread and self.reads and self.is_open:
            self.reads -= 1
            message = self._unread.pop(0)
            self._clock.call_later(0, lambda: self._arrive(message))

    def _arrive(self, message: bytes) -> None:
        if self.is_open:
            self._listener.on_message(message)
            self._end_if_read()

    def end(self, status: Status = OK) -> None:
        """End the stream when the client has read all messages."""
        self._end = status
        self._end_if_read()

    def _end_if_read(self) -> None:
        if self._end is not None and not self._unread and self.is_open:
            self.is_open = False
            self._listener.on_end(self._end)

    def read_again(self) -> None:
        """Let the server read after a time in which `is_writable` was False."""
        self.is_writable = True
        self._listener.on_writable()

    def take_requests(self) -> list[Proto]:
        """Take the decoded requests of the client."""
        sent, self.sent = self.sent, []
        return [_REQUESTS[self.path].FromString(message) for message in sent]


class FakeXdsTransport:
    """Transport to one server."""

    def __init__(self, server: FakeXdsServer) -> None:
        self.server = server
        self.on_failure: Callable[[Status], None] | None = None
        self.failure: Status | None = None
        self.streams: list[FakeXdsStream] = []
        self.is_closed = False

    def open(self, method_path: str, listener: StreamListener) -> FakeXdsStream:
        stream = FakeXdsStream(method_path, listener, self.server.clock)
        self.streams.append(stream)
        self.server.streams.append(stream)
        if self.server.is_up:
            self.server.clock.call_later(0, stream.connect)
        return stream

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        self.on_failure = listener
        if self.failure is not None:
            self.server.clock.call_later(0, self.report_failure)

    def report_failure(self) -> None:
        if self.on_failure is not None and self.failure is not None and not self.is_closed:
            self.on_failure(self.failure)

    def retry_in_s(self) -> float | None:
        return None

    def last_failure(self) -> Status:
        return self.failure or OK

    def close(self) -> None:
        self.is_closed = True
        for stream in self.streams:
            stream.close()


@dataclass
class FakeXdsServer:
    """One control plane: all streams to it, and whether it is reachable."""

    uri: str
    clock: VirtualClock
    is_up: bool = True
    streams: list[FakeXdsStream] = field(default_factory=list)
    transports: list[FakeXdsTransport] = field(default_factory=list)
    _nonces: int = 0

    @property
    def ads(self) -> FakeXdsStream:
        """The latest ADS stream."""
        return [stream for stream in self.streams if stream.path != LRS_PATH][-1]

    @property
    def lrs(self) -> FakeXdsStream:
        """The latest LRS stream."""
        return [stream for stream in self.streams if stream.path == LRS_PATH][-1]

    @property
    def open_ads(self) -> int:
        return sum(stream.is_open and stream.path == ADS_PATH for stream in self.streams)

    def fail(self, status: Status = GONE) -> None:
        """Report TRANSIENT_FAILURE on all transports."""
        for transport in self.transports:
            transport.failure = status
            transport.report_failure()

    def recover(self) -> None:
        """Become reachable: streams that wait get a connection."""
        self.is_up = True
        for transport in self.transports:
            transport.failure = None
        for stream in self.streams:
            stream.connect()

    def respond(
        self,
        resource_type: TextType,
        *resources: bytes,
        version: str = "1",
        nonce: str | None = None,
        wrapped: bool = False,
    ) -> None:
        """Send a response on the ADS stream and process it."""
        self.ads.send_to_client(
            self.response(resource_type, resources, version, nonce, wrapped=wrapped)
        )
        self.clock.advance(0)

    def respond_delta(
        self,
        resource_type: ResourceType[Any],
        *resources: tuple[str, str, bytes],
        removed: Iterable[str] = (),
        nonce: str = "n",
    ) -> None:
        """Send an incremental response with names, versions and bytes, and process it."""
        message = DeltaResponse(
            type_url=resource_type.type_url, nonce=nonce, removed_resources=removed
        )
        for name, version, serialized in resources:
            added = message.resources.add(name=name, version=version)
            added.resource.type_url = resource_type.type_url
            added.resource.value = serialized
        self.ads.send_to_client(message.SerializeToString())
        self.clock.advance(0)

    def response(
        self,
        resource_type: TextType,
        resources: Iterable[bytes],
        version: str = "1",
        nonce: str | None = None,
        *,
        wrapped: bool = False,
    ) -> bytes:
        self._nonces += 1
        message = DiscoveryResponse(
            version_info=version,
            type_url=resource_type.type_url,
            nonce=f"n{self._nonces}" if nonce is None else nonce,
        )
        for serialized in resources:
            if wrapped:
                wrapper = message_class("envoy.service.discovery.v3.Resource")(
                    name=json.loads(serialized)["name"]
                )
                wrapper.resource.type_url = resource_type.type_url
                wrapper.resource.value = serialized
                message.resources.add(type_url=WRAPPER_URL, value=wrapper.SerializeToString())
            else:
                message.resources.add(type_url=resource_type.type_url, value=serialized)
        serialized_message: bytes = message.SerializeToString()
        return serialized_message

    def take_requests(self) -> list[Proto]:
        return self.ads.take_requests()

    def take_requests_if_any(self) -> list[Proto]:
        """Like `take_requests`; empty if no stream was opened yet."""
        return self.take_requests() if self.streams else []


class FakeXdsTransports:
    """Factory of transports. Owns the servers, by URI."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.servers: dict[str, FakeXdsServer] = {}

    def server(self, uri: str) -> FakeXdsServer:
        return self.servers.setdefault(uri, FakeXdsServer(uri, self.clock))

    def create(self, server: ServerConfig) -> FakeXdsTransport:
        if server.uri == "unusable":
            raise ValueError("no such credentials")
        transport = FakeXdsTransport(self.server(server.uri))
        transport.server.transports.append(transport)
        return transport


def server_config(uri: str = "a", *features: str) -> ServerConfig:
    return ServerConfig(uri, ChannelCreds("insecure"), features=frozenset(features))


class XdsClientWorld:
    """One client, its servers and its clock."""

    def __init__(
        self,
        *servers: ServerConfig,
        bootstrap: Bootstrap | None = None,
        has_data_error_handling: bool = False,
        resources_max: int = 100_000,
        metrics: Metrics = NO_METRICS,
        make_last_good: Callable[[VirtualClock], LastGood] | None = None,
    ) -> None:
        self.clock = VirtualClock(1000.0)
        self.transports = FakeXdsTransports(self.clock)
        self.tools = Tools(self.clock, seeded_random(1), work=WorkQueue(self.clock))
        self.bootstrap = bootstrap or Bootstrap(
            servers=servers or (server_config(),), node=Node(id="edge-7", cluster="edge")
        )
        options = XdsClientOptions(
            has_data_error_handling=has_data_error_handling, resources_max=resources_max
        )
        last_good = None if make_last_good is None else make_last_good(self.clock)
        self.client = XdsClient(
            self.bootstrap, self.transports, self.tools, options, metrics, last_good=last_good
        )
        self.listeners = TextType(LISTENER, is_full_state=True)
        self.routes = TextType(ROUTES)
        self.clusters = TextType(CLUSTER, is_full_state=True)
        self.clusters.named_by = (self.listeners.type_url, self.routes.type_url)

    def server(self, uri: str = "a") -> FakeXdsServer:
        return self.transports.server(uri)

    def settle(self) -> None:
        """Run all timers that are due now."""
        self.clock.advance(0)

    def watch(self, resource_type: ResourceType[Any], name: str) -> WatchRecorder:
        """Start a watch and send its request."""
        recorder = WatchRecorder()
        self.client.watch(resource_type, name, recorder)
        self.settle()
        return recorder

    def close(self) -> None:
        self.client.close()
        # The work queue, which is the loop's, may have a timer.
        self.clock.advance(COLLECTION_DELAY_S)
        assert self.clock.timers_pending == 0, "a closed client leaves no timer"
        for server in self.transports.servers.values():
            assert all(transport.is_closed for transport in server.transports)


def grpcio_tasks() -> list[str]:
    """Running tasks of grpcio's server, whose `stop` does not wait for those of its handlers."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("rpc_task", "HandleExceptions"))]
