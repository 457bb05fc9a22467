"""How do xDS clients reach the control plane, and its owner the clients?

The edge: grpcio's asyncio server with the ADS and LRS services, written as generic handlers, so
that nothing generated is needed. `ControlPlane` owns the server; each stream is an `AdsStream` with
a task that sends what the core says. Everything runs on one loop.

A slow client costs no memory: it is told the newest snapshot when it can take it, not each of
those in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from proxyless.base import NULL_TRACE, OK, Status, StatusCode
from proxyless.controlplane.ads import (
    NOTHING_WITHHELD,
    REQUEST_BYTES_MAX,
    AdsStream,
    Nack,
    RequestRefused,
    Withheld,
)
from proxyless.controlplane.progress import Progress
from proxyless.controlplane.resource import type_name
from proxyless.controlplane.snapshot import Snapshot
from proxyless.protos import Proto, message_class
from proxyless.runtime import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from proxyless.base import Trace

# One snapshot for all clients, or one for each by its Node message.
SnapshotSource: TypeAlias = "Snapshot | Callable[[Proto], Snapshot]"
# grpcio's objects have no types.
Untyped: TypeAlias = Any

NACKS_MAX: Final = 1_000
LOAD_REPORTS_MAX: Final = 1_000
# Requests are not read while so many responses wait to be sent.
OUTBOX_MAX: Final = 16
# Only a hang takes longer.
PATIENCE_S: Final = 20.0
LOAD_REPORT_INTERVAL_S: Final = 1.0

_ADS: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_LRS: Final = "envoy.service.load_stats.v3.LoadReportingService"
_DELTA_REFUSED: Final = "incremental xDS is not served, wanted StreamAggregatedResources"


class NackedError(Exception):
    """A client refused what an ACK was awaited for."""

    def __init__(self, nack: Nack) -> None:
        super().__init__(str(nack))
        self.nack: Final = nack


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What a control plane is started with."""

    # Unpaced, all parts of a change are sent at once: for tests of clients.
    is_paced: bool = True
    # Resources in a Resource message, for clients that say that they know it.
    can_wrap: bool = False
    identifier: str = "proxyless"
    # grpcio's server credentials; without them the port is plain text.
    credentials: Untyped = None
    load_report_interval_s: float = LOAD_REPORT_INTERVAL_S
    trace: Trace = field(default=NULL_TRACE)


class ControlPlane:
    """Serves snapshots to xDS clients. Driven by its owner and by the clients; one loop's own.

    async with ControlPlane(simple_mesh("api", {"a": ["127.0.0.1:50051"]})) as control_plane:
        bootstrap = control_plane.bootstrap()
    """

    def __init__(
        self,
        snapshot: SnapshotSource,
        address: str = "127.0.0.1:0",
        options: ServiceOptions | None = None,
    ) -> None:
        # Fixed at construction; the address once its port is known.
        self._options: Final = options or ServiceOptions()
        self._address = address
        # From the owner.
        self._source = snapshot
        self._withheld = NOTHING_WITHHELD
        self.delay_s = 0.0
        # While it runs.
        self._server: Untyped = None
        self._streams: dict[_Stream, None] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._progress: Final = Progress()
        # What clients said, the newest last.
        self.nacks: deque[Nack] = deque(maxlen=NACKS_MAX)
        self.load_reports: deque[Proto] = deque(maxlen=LOAD_REPORTS_MAX)

    # Life

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
        """Listen; after a stop, at the same port. OSError if the address cannot be had."""
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
        """End all streams, at once unless there is a grace, and stop listening. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(grace_s)
        if self._handlers:
            await asyncio.wait(self._handlers)

    @property
    def address(self) -> str:
        """Where it listens, as a target for a channel."""
        return self._address

    @property
    def port(self) -> int:
        """The port; 0 before the first start, and on a Unix socket."""
        port = self._address.rpartition(":")[2]
        return int(port) if port.isdigit() else 0

    def bootstrap(self, node_id: str = "proxyless-test") -> dict[str, Any]:
        """The bootstrap config of a gRPC client of this control plane, ready for JSON."""
        kind = "insecure" if self._options.credentials is None else "tls"
        server = {
            "server_uri": self._address,
            "channel_creds": [{"type": kind}],
            "server_features": ["xds_v3"],
        }
        return {"xds_servers": [server], "node": {"id": node_id}}

    # What is served

    def set_snapshot(self, snapshot: SnapshotSource) -> None:
        """Serve this from now on. A callable is asked for each client, by its Node message."""
        self._source = snapshot
        self._wake_all()

    @property
    def snapshot(self) -> Snapshot:
        """What is served to all; RuntimeError if each client has its own."""
        if not isinstance(self._source, Snapshot):
            raise RuntimeError("control plane has a snapshot per node, wanted one for all")
        return self._source

    def withhold(self, type_url: str, *names: str) -> None:
        """Say nothing new of this type, or of these resources of it, until `release`."""
        if names:
            added = {(type_url, name) for name in names}
            self._withheld = replace(self._withheld, names=self._withheld.names | added)
        else:
            self._withheld = replace(self._withheld, types=self._withheld.types | {type_url})
        self._wake_all()

    def release(self, type_url: str | None = None) -> None:
        """Tell what was withheld, of one type or of all."""
        if type_url is None:
            self._withheld = NOTHING_WITHHELD
        else:
            types = self._withheld.types - {type_url}
            names = frozenset(pair for pair in self._withheld.names if pair[0] != type_url)
            self._withheld = Withheld(types, names)
        self._wake_all()

    def break_streams(self, status: Status | None = None) -> None:
        """End every ADS stream, with UNAVAILABLE unless told otherwise; the port stays open."""
        for stream in self._streams:
            stream.end(status or Status(StatusCode.UNAVAILABLE, "broken on purpose"))

    # What clients say

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
        timeout_s: float = PATIENCE_S,
    ) -> None:
        """Until every client that asks for this type, and at least one, has accepted a version.

        Without a version, that of the current snapshot. NackedError if a client refuses it.
        """
        wanted = self.snapshot.version_of(type_url) if version is None else version

        def all_acked() -> bool:
            asking = [
                core
                for core in self.streams
                if type_url in core.subscriptions and node_id in (None, core.node_id)
            ]
            for core in asking:
                nack = core.nack(type_url)
                if nack is not None and nack.version == wanted:
                    raise NackedError(nack)
            return bool(asking) and all(core.is_acked(type_url, wanted) for core in asking)

        what = f"an ACK of {type_name(type_url)} version {wanted!r}"
        await self._progress.wait_until(all_acked, what, timeout_s)

    async def wait_for_nack(
        self, type_url: str, version: str | None = None, *, timeout_s: float = PATIENCE_S
    ) -> Nack:
        """Until a client has refused this type, and that version of it if there is one."""

        def find() -> Nack | None:
            matches = (
                nack
                for nack in self.nacks
                if nack.type_url == type_url and version in (None, nack.version)
            )
            return next(matches, None)

        what = f"a NACK of {type_name(type_url)}"
        await self._progress.wait_until(lambda: find() is not None, what, timeout_s)
        nack = find()
        assert nack is not None, "nobody removes what was refused"
        return nack

    async def wait_for_streams(self, count: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Until so many ADS streams are open."""
        what = f"{count} ADS streams"
        await self._progress.wait_until(lambda: len(self._streams) == count, what, timeout_s)

    async def wait_for_load_report(self, *, timeout_s: float = PATIENCE_S) -> Proto:
        """Until a client has reported the load of a cluster; gives its LoadStatsRequest."""

        def find() -> Proto | None:
            return next((report for report in self.load_reports if report.cluster_stats), None)

        await self._progress.wait_until(lambda: find() is not None, "a load report", timeout_s)
        return find()

    # Inside

    def _list_handlers(self) -> Iterable[Untyped]:
        discovery = "envoy.service.discovery.v3"
        ads = {
            "StreamAggregatedResources": _handler(self._serve_ads, f"{discovery}.DiscoveryRequest"),
            "DeltaAggregatedResources": _handler(
                _refuse_delta, f"{discovery}.DeltaDiscoveryRequest"
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
        try:
            if credentials is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise OSError(f"control plane cannot listen at {self._address!r}: {error}") from None
        if not self._address.startswith("unix"):
            self._address = f"{self._address.rpartition(':')[0]}:{port}"

    async def _serve_ads(self, _requests: Untyped, context: Untyped) -> None:
        options = self._options
        core = AdsStream(
            is_paced=options.is_paced,
            can_wrap=options.can_wrap,
            identifier=options.identifier,
            on_nack=self.nacks.append,
            trace=options.trace,
        )
        stream = _Stream(self, core, context, self._progress)
        with self._running():
            self._streams[stream] = None
            self._options.trace.emit("controlplane.stream_opened", peer=context.peer())
            self._progress.note()
            try:
                status = await stream.run()
            finally:
                del self._streams[stream]
                self._progress.note()
                self._options.trace.emit("controlplane.stream_closed", node_id=core.node_id)
            if not status.is_ok:
                await _abort(context, status)

    async def _serve_lrs(self, _requests: Untyped, context: Untyped) -> None:
        with self._running():
            response = message_class("envoy.service.load_stats.v3.LoadStatsResponse")(
                send_all_clusters=True
            )
            interval_ns = round(self._options.load_report_interval_s * 1e9)
            response.load_reporting_interval.FromNanoseconds(interval_ns)
            is_first = True
            while (report := await context.read()) is not grpc.aio.EOF:
                self.load_reports.append(report)
                self._progress.note()
                if is_first:
                    is_first = False
                    await context.write(response)

    def _running(self) -> _Handler:
        """Inside, the handler's task is one that `stop` waits for."""
        return _Handler(self._handlers)

    def choose_snapshot(self, node: Proto) -> tuple[Snapshot, Withheld]:
        """For a stream: what its client is to know now."""
        source = self._source
        snapshot = source if isinstance(source, Snapshot) else source(node)
        return snapshot, self._withheld

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake()


class _Handler:
    """Context manager: inside, the current task is among the handlers."""

    __slots__ = ("_handlers", "_task")

    def __init__(self, handlers: set[asyncio.Task[None]]) -> None:
        self._handlers = handlers
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._task: asyncio.Task[None] = task

    def __enter__(self) -> None:
        self._handlers.add(self._task)

    def __exit__(self, *_: object) -> None:
        self._handlers.discard(self._task)


class _Stream:
    """Reads requests and sends responses for one core. Ends with the client, or by `end`."""

    def __init__(
        self, owner: ControlPlane, core: AdsStream, context: Untyped, progress: Progress
    ) -> None:
        self.core: Final = core
        self._owner: Final = owner
        self._context: Final = context
        self._progress: Final = progress
        self._outbox: deque[Proto] = deque()
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._end: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    async def run(self) -> Status:
        """Until the client or the owner ends it; how it ended."""
        ends: list[asyncio.Future[Status]] = [
            self._end,
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._write()),
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        return next(end.result() for end in ends if end in done)

    def wake(self) -> None:
        """There is a new snapshot, or something else to look at."""
        self._has_work.set()

    def end(self, status: Status) -> None:
        if not self._end.done():
            self._end.set_result(status)

    async def _read(self) -> Status:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            try:
                self._outbox += self.core.on_request(request)
            except RequestRefused as refused:
                return refused.status
            self._progress.note()
            self._has_work.set()
            while len(self._outbox) > OUTBOX_MAX:
                self._has_room.clear()
                await self._has_room.wait()
        return OK

    async def _write(self) -> Status:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            if self.core.subscriptions:  # Before the first request nobody knows which node it is.
                self._outbox += self.core.on_snapshot(*self._owner.choose_snapshot(self.core.node))
                self._progress.note()
            while self._outbox:
                if self._owner.delay_s > 0:
                    await _pause(self._owner.delay_s)
                try:
                    await self._context.write(self._outbox.popleft())
                except grpc.aio.BaseError:  # The client is gone.
                    return OK
            self._has_room.set()


async def _pause(delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = LoopClock(loop).call_later(delay_s, lambda: over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


async def _refuse_delta(_requests: Untyped, context: Untyped) -> None:
    await _abort(context, Status(StatusCode.UNIMPLEMENTED, _DELTA_REFUSED))


async def _abort(context: Untyped, status: Status) -> None:
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code.value)
    await context.abort(code, status.details)


def _handler(behave: Untyped, request_type: str) -> Untyped:
    return grpc.stream_stream_rpc_method_handler(
        behave,
        request_deserializer=message_class(request_type).FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
