"""Message loop of one ADS stream: requests into an `AdsStream`, its responses to the client.

A slow client takes no memory: it gets the newest snapshot when it can receive it, and not those in
between, and no requests are read while responses are queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from proxyless.base import NULL_TRACE, OK, Status, Trace
from proxyless.controlplane.answers import NOTHING_WITHHELD, RequestRefused, Withheld
from proxyless.controlplane.missing import RequestedNames, find_missing
from proxyless.controlplane.snapshot import Snapshot
from proxyless.protos import Proto
from proxyless.runtime import IDLE_TIMER, LoopClock

if TYPE_CHECKING:
    from proxyless.controlplane.ads import AdsStream
    from proxyless.controlplane.change_condition import ChangeCondition

# One snapshot for all clients, or a function of a client's Node message.
SnapshotSource: TypeAlias = Snapshot | Callable[[Proto], Snapshot]

# Requests are not read while more responses than this are queued.
OUTBOX_MAX: Final = 16
# The time for a client to subscribe to the clusters of new routes, before old ones are removed.
REMOVAL_TIMEOUT_S: Final = 5.0
# The time before old clusters are removed from a client that has new routes: RPCs that were routed
# before may not be picked yet, or may be retried.
REMOVAL_GRACE_S: Final = 0.5
# The time for a last response before the end of a stream: grpcio cannot send a status while it
# sends a message.
WRITE_TIMEOUT_S: Final = 2.0


@dataclass(slots=True)
class ServedConfig:
    """The served snapshots, and injected faults. Changed only by the control plane's owner."""

    source: SnapshotSource
    withheld: Withheld = NOTHING_WITHHELD
    # The delay of each response.
    delay_s: float = 0.0

    def choose_snapshot(self, node: Proto) -> Snapshot:
        """The current snapshot for this client."""
        return self.source if isinstance(self.source, Snapshot) else self.source(node)


class Peer(Protocol):
    """The client's end of a stream."""

    async def read(self) -> Proto | None:
        """The next request; None at the end of the stream."""
        ...

    async def write(self, response: Proto) -> bool:
        """Send a response; False if the client is gone."""
        ...


class StreamPump:
    """Message loop of one `AdsStream`, and its timers."""

    def __init__(
        self,
        core: AdsStream,
        peer: Peer,
        served: ServedConfig,
        changes: ChangeCondition,
        trace: Trace = NULL_TRACE,
    ) -> None:
        # Fixed at construction.
        self.core: Final = core
        self._peer: Final = peer
        self._served: Final = served
        self._changes: Final = changes
        self._trace: Final = trace
        self._requested: Final = RequestedNames()
        self._clock: Final = LoopClock(asyncio.get_running_loop())
        # Responses to send.
        self._outbox: deque[Proto] = deque()
        self._writing: asyncio.Future[bool] | None = None
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._removal_timer = IDLE_TIMER
        self._grace_timer = IDLE_TIMER
        # The number of the core's grace that `_grace_timer` is for.
        self._grace: int | None = None
        # Set by `end`.
        self._end: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    async def run(self) -> Status:
        """Run until the client or the owner ends the stream; return its status."""
        ends: list[asyncio.Future[Status]] = [
            self._end,
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._write()),
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._removal_timer.cancel()
            self._grace_timer.cancel()
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await self._finish_writing()
        return next(end.result() for end in ends if end in done)

    def wake(self) -> None:
        """Send what is due after a change of the `ServedConfig`."""
        self._has_work.set()

    def end(self, status: Status) -> None:
        """End the stream with this status. Idempotent."""
        if not self._end.done():
            self._end.set_result(status)

    async def _read(self) -> Status:
        while (request := await self._peer.read()) is not None:
            try:
                self._outbox += self.core.on_request(request)
            except RequestRefused as refused:
                return refused.status
            self._changes.notify_all()
            self._has_work.set()
            self._trace_missing(request.type_url)
            while len(self._outbox) > OUTBOX_MAX:
                self._has_room.clear()
                await self._has_room.wait()
        return OK

    def _trace_missing(self, type_url: str) -> None:
        names = self._requested.update(type_url, self.core.subscriptions[type_url].names)
        if names and self._trace.active:
            resources = self._served.choose_snapshot(self.core.node).resources(type_url)
            missing = find_missing(self.core.node_id, type_url, names, resources)
            if missing is not None:
                self._trace.emit("controlplane.missing", missing=missing)

    async def _write(self) -> Status:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            if self.core.subscriptions:  # The first request has the node.
                snapshot = self._served.choose_snapshot(self.core.node)
                self._outbox += self.core.on_snapshot(snapshot, self._served.withheld)
                self._changes.notify_all()
            while self._outbox:
                if self._served.delay_s > 0:
                    await self._pause(self._served.delay_s)
                self._writing = asyncio.ensure_future(self._peer.write(self._outbox.popleft()))
                if not await asyncio.shield(self._writing):
                    return OK
            self._has_room.set()
            self._update_timers()

    async def _finish_writing(self) -> None:
        """Wait for the current response to be sent, with a timeout."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=WRITE_TIMEOUT_S)
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _update_timers(self) -> None:
        if not self.core.has_removal_pending():
            self._removal_timer.cancel()
        elif not self._removal_timer.pending:
            self._removal_timer = self._clock.call_later(
                REMOVAL_TIMEOUT_S, self._on_removal_timeout
            )
        if self.core.grace != self._grace:
            self._grace = self.core.grace
            self._grace_timer.cancel()
            if self._grace is not None:
                grace_s = self.core.removal_grace_s
                self._grace_timer = self._clock.call_later(grace_s, self._on_grace_over)

    def _on_removal_timeout(self) -> None:
        self._outbox += self.core.on_removal_timeout()
        self._has_work.set()

    def _on_grace_over(self) -> None:
        self._outbox += self.core.on_grace_over()
        self._has_work.set()

    async def _pause(self, delay_s: float) -> None:
        over = asyncio.Event()
        timer = self._clock.call_later(delay_s, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
