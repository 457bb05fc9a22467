"""How do a core and a client's stream keep each other busy?

`StreamPump` reads requests into an `AdsStream` and sends what it says, over whatever can read and
write messages: grpcio's stream in `service`, a pair of queues in a test.

A slow client costs no memory: it is told the newest snapshot when it can take it, not each of
those in between, and no requests are read while responses pile up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from proxyless.base import OK, Status
from proxyless.controlplane.ads import NOTHING_WITHHELD, AdsStream, RequestRefused, Withheld
from proxyless.controlplane.snapshot import Snapshot
from proxyless.protos import Proto
from proxyless.runtime import IDLE_TIMER, LoopClock

if TYPE_CHECKING:
    from proxyless.controlplane.progress import Progress

# One snapshot for all clients, or one for each by its Node message.
SnapshotSource: TypeAlias = Snapshot | Callable[[Proto], Snapshot]

# Requests are not read while more responses than this wait to be sent.
OUTBOX_MAX: Final = 16
# How long a client may take to ask for the clusters of new routes, before it is told which of the
# old ones are gone.
REMOVAL_PATIENCE_S: Final = 5.0
# How long the end of a stream waits for a response that is being sent: grpcio cannot send a status
# while it sends a message.
WRITE_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class Offer:
    """What the owner lets clients know, faults included. Changed by the owner only."""

    source: SnapshotSource
    withheld: Withheld = NOTHING_WITHHELD
    # How long each response is held back.
    delay_s: float = 0.0

    def choose_snapshot(self, node: Proto) -> Snapshot:
        """What the client with this node is to know now."""
        return self.source if isinstance(self.source, Snapshot) else self.source(node)


class Peer(Protocol):
    """The client's end of a stream."""

    async def read(self) -> Proto | None:
        """The next request; None if there will be no more."""
        ...

    async def write(self, response: Proto) -> bool:
        """Send; False if the client is gone."""
        ...


class StreamPump:
    """Runs one core. Driven by the client (requests) and the owner (wake, end)."""

    def __init__(self, core: AdsStream, peer: Peer, offer: Offer, progress: Progress) -> None:
        # Fixed at construction.
        self.core: Final = core
        self._peer: Final = peer
        self._offer: Final = offer
        self._progress: Final = progress
        self._clock: Final = LoopClock(asyncio.get_running_loop())
        # What is still to be sent.
        self._outbox: deque[Proto] = deque()
        self._writing: asyncio.Future[bool] | None = None
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._removal_timer = IDLE_TIMER
        # For which grace of the core's.
        self._grace_timer = IDLE_TIMER
        self._grace: int | None = None
        # From the owner.
        self._end: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    async def run(self) -> Status:
        """Until the client or the owner ends it; how it is to end."""
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
        """The offer has changed."""
        self._has_work.set()

    def end(self, status: Status) -> None:
        """End the stream with this status, soon. Idempotent."""
        if not self._end.done():
            self._end.set_result(status)

    async def _read(self) -> Status:
        while (request := await self._peer.read()) is not None:
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
                snapshot = self._offer.choose_snapshot(self.core.node)
                self._outbox += self.core.on_snapshot(snapshot, self._offer.withheld)
                self._progress.note()
            while self._outbox:
                if self._offer.delay_s > 0:
                    await self._pause(self._offer.delay_s)
                self._writing = asyncio.ensure_future(self._peer.write(self._outbox.popleft()))
                if not await asyncio.shield(self._writing):
                    return OK
            self._has_room.set()
            self._watch_removal()

    async def _finish_writing(self) -> None:
        """Let what is being sent leave, unless the client does not take it."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=WRITE_PATIENCE_S)
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _watch_removal(self) -> None:
        if not self.core.has_removal_pending():
            self._removal_timer.cancel()
        elif not self._removal_timer.pending:
            self._removal_timer = self._clock.call_later(REMOVAL_PATIENCE_S, self._on_patience_over)
        if self.core.grace != self._grace:
            self._grace = self.core.grace
            self._grace_timer.cancel()
            if self._grace is not None:
                grace_s = self.core.removal_grace_s
                self._grace_timer = self._clock.call_later(grace_s, self._on_grace_over)

    def _on_patience_over(self) -> None:
        self._outbox += self.core.on_patience_over()
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
