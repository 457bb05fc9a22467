"""Control plane of the simulated mesh, and its faults.

The core of `proxyless.controlplane` on the package's HTTP/2 server. It can be stopped, delayed,
withhold resources, serve resources that clients reject, and break its streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, IpAddress, Status, StatusCode
from proxyless.controlplane.ads import AdsStream
from proxyless.controlplane.answers import NOTHING_WITHHELD
from proxyless.controlplane.change_condition import ChangeCondition
from proxyless.controlplane.delta import DeltaAdsStream
from proxyless.controlplane.stream import ServedConfig, StreamPump
from proxyless.protos import Proto, message_class
from proxyless.transport import Server, ServerCall

if TYPE_CHECKING:
    from proxyless.controlplane.answers import Nack
    from proxyless.controlplane.snapshot import Snapshot
    from proxyless.sim.hosts import Host

PORT: Final = 18000
LOAD_REPORT_INTERVAL_S: Final = 10.0

_DISCOVERY: Final = "envoy.service.discovery.v3"
_LOAD: Final = "envoy.service.load_stats.v3"
_ADS: Final = f"/{_DISCOVERY}.AggregatedDiscoveryService"
_ADS_PATH: Final = f"{_ADS}/StreamAggregatedResources"
_DELTA_PATH: Final = f"{_ADS}/DeltaAggregatedResources"
_LRS_PATH: Final = f"/{_LOAD}.LoadReportingService/StreamLoadStats"
_BROKEN: Final = Status(StatusCode.UNAVAILABLE, "broken on purpose")


class SimControlPlane:
    """One xDS server. It owns the snapshot that it serves, its streams and its faults."""

    def __init__(self, host: Host, snapshot: Snapshot) -> None:
        # If not, all parts of a change are sent at once; changed before the start.
        self.is_paced = True
        # Whether clients use the incremental variant; changed before they read the bootstrap.
        self.is_delta = False
        self.host: Final = host
        self.name: Final = host.name
        self.address: Final = IpAddress(host.ip, PORT)
        self._served: Final = ServedConfig(snapshot)
        self._server: Server | None = None
        self._streams: dict[StreamPump, None] = {}
        self.load_streams = 0
        self._changes: Final = ChangeCondition()
        self.nacks: list[Nack] = []
        self.load_reports = 0

    @property
    def bootstrap_server(self) -> dict[str, object]:
        """This server, as an entry of `xds_servers`."""
        return {
            "server_uri": f"ipv4:{self.address}",
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3", "delta"] if self.is_delta else ["xds_v3"],
        }

    async def start(self) -> None:
        """Start to serve. Idempotent."""
        if self._server is not None:
            return
        self.host.note("control.start")
        self._server = Server(
            {
                _ADS_PATH: self._serve_ads,
                _DELTA_PATH: self._serve_delta,
                _LRS_PATH: self._serve_lrs,
            }
        )
        await self._server.listen(self.address, network=self.host.network)

    async def stop(self) -> None:
        """End all streams and connections. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            self.host.note("control.stop")
            await server.close()

    @property
    def snapshot(self) -> Snapshot:
        return self._served.choose_snapshot(message_class("envoy.config.core.v3.Node")())

    def set_snapshot(self, snapshot: Snapshot) -> None:
        self.host.note("control.snapshot", version=snapshot.version, resources=len(snapshot))
        self._served.source = snapshot
        self._wake_all()

    def withhold(self, type_url: str, *names: str) -> None:
        """Send no updates of this type, or of these resources of it, until `release`."""
        self.host.note("fault.withhold", type_url=type_url, names=names)
        self._served.withheld = self._served.withheld.plus(type_url, names)
        self._wake_all()

    def release(self) -> None:
        """End `withhold` and `delay`."""
        self.host.note("fault.release")
        self._served.withheld = NOTHING_WITHHELD
        self._served.delay_s = 0.0
        self._wake_all()

    def delay(self, delay_s: float) -> None:
        self.host.note("fault.delay", delay_s=delay_s)
        self._served.delay_s = delay_s

    def break_streams(self) -> None:
        """End every ADS stream; the port stays open."""
        self.host.note("fault.break_streams", streams=len(self._streams))
        for stream in list(self._streams):
            stream.end(_BROKEN)

    @property
    def streams(self) -> tuple[AdsStream, ...]:
        """The open ADS streams, oldest first."""
        return tuple(stream.core for stream in self._streams)

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake()

    async def _serve_ads(self, call: ServerCall) -> Status:
        return await self._serve(AdsStream, call, f"{_DISCOVERY}.DiscoveryRequest")

    async def _serve_delta(self, call: ServerCall) -> Status:
        return await self._serve(DeltaAdsStream, call, f"{_DISCOVERY}.DeltaDiscoveryRequest")

    async def _serve(self, variant: type[AdsStream], call: ServerCall, kind: str) -> Status:
        core = variant(
            is_paced=self.is_paced,
            identifier=self.name,
            on_nack=self.nacks.append,
            trace=self.host.trace,
        )
        stream = StreamPump(core, _CallPeer(call, kind), self._served, self._changes)
        self.host.note("control.stream_opened")
        self._streams[stream] = None
        try:
            return await stream.run()
        finally:
            del self._streams[stream]
            self.host.note("control.stream_closed", node=core.node_id)

    async def _serve_lrs(self, call: ServerCall) -> Status:
        answer = message_class(f"{_LOAD}.LoadStatsResponse")(send_all_clusters=True)
        answer.load_reporting_interval.FromNanoseconds(round(LOAD_REPORT_INTERVAL_S * 1e9))
        is_first = True
        self.load_streams += 1
        try:
            async for message in call:
                self.load_reports += 1
                self.host.note("control.load_report", bytes=len(message))
                if is_first:
                    is_first = False
                    await call.write(answer.SerializeToString(deterministic=True))
        finally:
            self.load_streams -= 1
        return OK


class _CallPeer:
    """Client of an ADS stream, for the core of the control plane."""

    __slots__ = ("_call", "_request_type")

    def __init__(self, call: ServerCall, request_type: str) -> None:
        self._call = call
        self._request_type = request_type

    async def read(self) -> Proto | None:
        message = await self._call.read()
        if message is None:
            return None
        return message_class(self._request_type).FromString(message)

    async def write(self, response: Proto) -> bool:
        await self._call.write(response.SerializeToString(deterministic=True))
        return True
