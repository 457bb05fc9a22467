"""ControlPlane: an xDS server on grpcio's asyncio server, with the ADS and LRS services.

The services are generic handlers, without generated code. All runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from proxyless.base import NULL_TRACE, Status, StatusCode, one_line
from proxyless.base.frozen import frozen
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.controlplane.ads import REQUEST_BYTES_MAX, AdsStream
from proxyless.controlplane.answers import NOTHING_WITHHELD, Nack
from proxyless.controlplane.bind_errors import find_bind_error
from proxyless.controlplane.change_condition import ChangeCondition
from proxyless.controlplane.delta import DeltaAdsStream
from proxyless.controlplane.resource import type_name
from proxyless.controlplane.snapshot import Snapshot
from proxyless.controlplane.stream import (
    REMOVAL_GRACE_S,
    ServedConfig,
    SnapshotSource,
    StreamPump,
)
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from proxyless.base import Trace

# grpcio's objects have no types.
Untyped: TypeAlias = Any

NACKS_MAX: Final = 1_000
LOAD_REPORTS_MAX: Final = 1_000
# Size of all reports that are kept.
LOAD_REPORT_BYTES_MAX: Final = 4 * 2**20
STREAMS_MAX: Final = 1_000
WAIT_TIMEOUT_S: Final = 20.0
LOAD_REPORT_INTERVAL_S: Final = 1.0

_ADS: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_LRS: Final = "envoy.service.load_stats.v3.LoadReportingService"
_TOO_MANY_STREAMS: Final = Status(
    StatusCode.RESOURCE_EXHAUSTED, f"there are {STREAMS_MAX} ADS streams already"
)


class NackedError(Exception):
    """A client rejected the version that `wait_for_ack` waits for."""

    def __init__(self, nack: Nack) -> None:
        super().__init__(str(nack))
        self.nack: Final = nack


@frozen
class ServiceOptions:
    """Options of a `ControlPlane`."""

    # If False, all parts of a change are sent at once, for tests of clients.
    is_paced: bool = True
    removal_grace_s: float = REMOVAL_GRACE_S
    # Whether resources are sent in a Resource message to clients with that client feature.
    can_wrap: bool = False
    identifier: str = "proxyless"
    # grpcio's server credentials; None for plain text.
    credentials: Untyped = None
    load_report_interval_s: float = LOAD_REPORT_INTERVAL_S
    trace: Trace = field(default=NULL_TRACE)


class ControlPlane:
    """An xDS server for snapshots. All calls must be on one event loop.

    async with ControlPlane(simple_mesh("api", {"a": ["127.0.0.1:50051"]})) as control_plane:
        bootstrap = control_plane.bootstrap()
    """

    def __init__(
        self,
        snapshot: SnapshotSource,
        address: str = "127.0.0.1:0",
        options: ServiceOptions | None = None,
    ) -> None:
        self._options: Final = options or ServiceOptions()
        # With the actual port after the first start.
        self._address = address
        self._served: Final = ServedConfig(snapshot)
        # Set while it runs.
        self._server: Untyped = None
        self._streams: dict[StreamPump, None] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._changes: Final = ChangeCondition()
        # From clients, the newest last.
        self.nacks: deque[Nack] = deque(maxlen=NACKS_MAX)
        self.load_reports: deque[Proto] = deque(maxlen=LOAD_REPORTS_MAX)
        self._report_sizes: deque[int] = deque(maxlen=LOAD_REPORTS_MAX)

    # Start and stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after a `stop`, at the same port. OSError if the address cannot be bound."""
        if self._server is not None:
            raise RuntimeError(f"control plane at {self._address} is running already")
        server = grpc.aio.server(
            options=(
                # Two servers must not share a port by chance.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
            )
        )
        server.add_generic_rpc_handlers(self._list_handlers())
        self._bind(server)
        await server.start()
        self._server = server

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop listening and end all streams, after the grace if there is one. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(grace_s)
        if self._handlers:
            await asyncio.wait(self._handlers)

    @property
    def address(self) -> str:
        """The listening address, as a target for a channel."""
        return self._address

    @property
    def port(self) -> int:
        """The port; 0 before the first start, and on a Unix socket."""
        port = self._address.rpartition(":")[2]
        return int(port) if port.isdigit() else 0

    def bootstrap(
        self, node_id: str = "proxyless-test", *, features: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The bootstrap config of a gRPC client of this control plane, as JSON.

        `features` are more server features, such as `delta`.
        """
        kind = "insecure" if self._options.credentials is None else "tls"
        server = {
            "server_uri": self._address,
            "channel_creds": [{"type": kind}],
            "server_features": ["xds_v3", *features],
        }
        return {"xds_servers": [server], "node": {"id": node_id}}

    # Snapshots and faults

    def set_snapshot(self, snapshot: SnapshotSource) -> None:
        """Serve this snapshot; a callable is called with the Node message of each client."""
        self._served.source = snapshot
        self._wake_all()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot for all clients; RuntimeError if each client has its own."""
        source = self._served.source
        if not isinstance(source, Snapshot):
            raise RuntimeError("control plane has a snapshot per node, wanted one for all")
        return source

    def withhold(self, type_url: str, *names: str) -> None:
        """Send no changes of this type, or of these resources of it, until `release`."""
        self._served.withheld = self._served.withheld.plus(type_url, names)
        self._wake_all()

    def release(self, type_url: str | None = None) -> None:
        """Send the withheld changes of one type or of all."""
        withheld = self._served.withheld
        self._served.withheld = NOTHING_WITHHELD if type_url is None else withheld.minus(type_url)
        self._wake_all()

    def delay(self, delay_s: float) -> None:
        """Delay each response from now on."""
        self._served.delay_s = delay_s

    def break_streams(self, status: Status | None = None) -> None:
        """End every ADS stream, by default with UNAVAILABLE; the port stays open."""
        for stream in self._streams:
            stream.end(status or Status(StatusCode.UNAVAILABLE, "broken on purpose"))

    # Clients

    @property
    def streams(self) -> tuple[AdsStream, ...]:
        """The open ADS streams, oldest first."""
        return tuple(stream.core for stream in self._streams)

    async def wait_for_ack(
        self,
        type_url: str,
        version: str | None = None,
        *,
        node_id: str | None = None,
        timeout_s: float = WAIT_TIMEOUT_S,
    ) -> None:
        """Wait until all clients with this type, and at least one, have accepted a version.

        The default is the version of the current snapshot. NackedError if a client rejects it.
        """
        target = self.snapshot.version_of(type_url) if version is None else version

        def all_acked() -> bool:
            subscribed = [
                core
                for core in self.streams
                if type_url in core.subscriptions and node_id in (None, core.node_id)
            ]
            for core in subscribed:
                nack = core.nack(type_url)
                if nack is not None and nack.version == target:
                    raise NackedError(nack)
            return bool(subscribed) and all(core.is_acked(type_url, target) for core in subscribed)

        what = f"an ACK of {type_name(type_url)} version {target!r}"
        await self._changes.wait_for(all_acked, what, timeout_s)

    async def wait_for_nack(
        self, type_url: str, version: str | None = None, *, timeout_s: float = WAIT_TIMEOUT_S
    ) -> Nack:
        """Wait until a client has rejected this type, in this version if one is given."""

        def find_nack() -> Nack | None:
            matches = (
                nack
                for nack in self.nacks
                if nack.type_url == type_url and version in (None, nack.version)
            )
            return next(matches, None)

        what = f"a NACK of {type_name(type_url)}"
        return await self._changes.wait_for(find_nack, what, timeout_s)

    async def wait_for_streams(self, count: int, *, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until exactly `count` ADS streams are open."""
        what = f"{count} ADS streams"
        await self._changes.wait_for(lambda: len(self._streams) == count, what, timeout_s)

    async def wait_for_load_report(self, *, timeout_s: float = WAIT_TIMEOUT_S) -> Proto:
        """The first LoadStatsRequest with the load of a cluster."""

        def find_report() -> Proto | None:
            return next((report for report in self.load_reports if report.cluster_stats), None)

        return await self._changes.wait_for(find_report, "a load report", timeout_s)

    # Handlers

    def _list_handlers(self) -> Iterable[Untyped]:
        discovery = "envoy.service.discovery.v3"
        ads = {
            "StreamAggregatedResources": _handler(self._serve_ads, f"{discovery}.DiscoveryRequest"),
            "DeltaAggregatedResources": _handler(
                self._serve_delta, f"{discovery}.DeltaDiscoveryRequest"
            ),
        }
        lrs = {
            "StreamLoadStats": _handler(
                self._serve_lrs, "envoy.service.load_stats.v3.LoadStatsRequest"
            )
        }
        return (
            grpc.method_handlers_generic_handler(_ADS, ads),
            grpc.method_handlers_generic_handler(_LRS, lrs),
        )

    def _bind(self, server: Untyped) -> None:
        credentials = self._options.credentials
        # Before grpcio, which writes a line of its own to stderr, and whose error has no reason.
        reason = find_bind_error(self._address)
        if reason is not None:
            raise self._bind_error(reason)
        try:
            if credentials is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise self._bind_error(str(error)) from None
        if not self._address.startswith("unix"):
            self._address = f"{self._address.rpartition(':')[0]}:{port}"

    def _bind_error(self, reason: str) -> OSError:
        return OSError(f"control plane cannot listen at {self._address!r}: {reason}")

    async def _serve_ads(self, _requests: Untyped, context: Untyped) -> None:
        await self._serve(AdsStream, context)

    async def _serve_delta(self, _requests: Untyped, context: Untyped) -> None:
        await self._serve(DeltaAdsStream, context)

    async def _serve(self, variant: type[AdsStream], context: Untyped) -> None:
        options = self._options
        if len(self._streams) >= STREAMS_MAX:
            await _abort(context, _TOO_MANY_STREAMS)
        core = variant(
            is_paced=options.is_paced,
            removal_grace_s=options.removal_grace_s,
            can_wrap=options.can_wrap,
            identifier=options.identifier,
            on_nack=self.nacks.append,
            trace=options.trace,
        )
        stream = StreamPump(core, _AioPeer(context), self._served, self._changes, options.trace)
        self._add_handler()
        self._streams[stream] = None
        self._options.trace.emit("controlplane.stream_opened", peer=context.peer())
        self._changes.notify_all()
        try:
            status = await stream.run()
        finally:
            del self._streams[stream]
            self._changes.notify_all()
            node_id = one_line(core.node_id, NAME_LENGTH_MAX)
            self._options.trace.emit("controlplane.stream_closed", node_id=node_id)
        if not status.is_ok:
            await _abort(context, status)

    async def _serve_lrs(self, _requests: Untyped, context: Untyped) -> None:
        self._add_handler()
        response = message_class("envoy.service.load_stats.v3.LoadStatsResponse")(
            send_all_clusters=True
        )
        interval_ns = round(self._options.load_report_interval_s * 1e9)
        response.load_reporting_interval.FromNanoseconds(interval_ns)
        is_first = True
        while (report := await context.read()) is not grpc.aio.EOF:
            self._keep_report(report)
            self._changes.notify_all()
            if is_first:
                is_first = False
                await context.write(response)

    def _keep_report(self, report: Proto) -> None:
        """Add a report, and drop the oldest beyond the limits."""
        reports, sizes = self.load_reports, self._report_sizes
        while len(sizes) > len(reports):  # The owner has taken reports away.
            sizes.popleft()
        reports.append(report)
        sizes.append(report.ByteSize())
        total = sum(sizes)
        while total > LOAD_REPORT_BYTES_MAX and len(reports) > 1:
            reports.popleft()
            total -= sizes.popleft()

    def _add_handler(self) -> None:
        """Let `stop` wait for the current task, which continues after its handler returns."""
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake()


class _AioPeer:
    """The client of a grpcio handler."""

    __slots__ = ("_context",)

    def __init__(self, context: Untyped) -> None:
        self._context = context

    async def read(self) -> Proto | None:
        request = await self._context.read()
        return None if request is grpc.aio.EOF else request

    async def write(self, response: Proto) -> bool:
        try:
            await self._context.write(response)
        except grpc.aio.BaseError:
            return False
        return True


async def _abort(context: Untyped, status: Status) -> None:
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code.value)
    await context.abort(code, status.details)


def _handler(serve: Untyped, request_type: str) -> Untyped:
    return grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=message_class(request_type).FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
