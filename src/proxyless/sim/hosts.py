"""Host: a machine of the simulated mesh.

It has a name, an IP address, a network, its own random numbers, and the stack that its channels
share. Faults cut or stall its links and break its connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.assembly import (
    ChannelSettings,
    Stacks,
    default_policies,
    default_resolvers,
    make_aio_channel,
)
from proxyless.channel import LoopStack, SubchannelPool
from proxyless.front import insecure_channel_credentials
from proxyless.observe.flight import FlightRecorder
from proxyless.runtime import LogTrace, LoopClock, WorkQueue
from proxyless.sim.network import SimNetwork
from proxyless.sim.random_choices import derived_random
from proxyless.transport import Connector
from proxyless.xds.stack import XdsStack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from proxyless.assembly import Registries
    from proxyless.base import Event
    from proxyless.front import AioChannel
    from proxyless.sim.journal import Journal
    from proxyless.sim.links import SimTransport
    from proxyless.sim.loop import SimLoop
    from proxyless.sim.network import Fabric


class Host:
    """One machine. It owns the subchannel pool and the xDS clients of its channels."""

    def __init__(
        self, name: str, ip: str, seed: int, parts: tuple[SimLoop, Fabric, Journal]
    ) -> None:
        self.name: Final = name
        self.ip: Final = ip
        self.random: Final = derived_random(seed, name)
        self._loop, self._fabric, self._journal = parts
        self.network: Final = SimNetwork(self._fabric, ip)
        self.trace: Final = LogTrace()
        self.trace.subscribe(self._on_event)
        # Created for the first channel, on the running loop.
        self._stack: LoopStack | None = None
        self._xds: XdsStack | None = None

    def __str__(self) -> str:
        return self.name

    def note(self, event: str, /, **fields: object) -> None:
        self._journal.note(self.name, event, **fields)

    def channel(
        self,
        target: str,
        *,
        options: Iterable[tuple[str, Any]] | None = None,
        bootstrap: Mapping[str, object] | None = None,
        registries: Registries | None = None,
    ) -> AioChannel:
        """Create a channel as `proxyless.aio.insecure_channel` does, by default without proxies."""
        settings = ChannelSettings(
            [("grpc.enable_http_proxy", 0), *(options or ())],
            registries=registries,
            bootstrap=bootstrap,
            stacks=Stacks(channel=self.stack, xds=self.xds),
        )
        return make_aio_channel(target, insecure_channel_credentials(), settings)

    def stack(self) -> LoopStack:
        if self._stack is None:
            clock = LoopClock(self._loop)
            connector = Connector(network=self.network, clock=clock)
            work = WorkQueue(clock)
            pool = SubchannelPool(
                connector, clock=clock, random=self.random, trace=self.trace, work=work
            )
            self._stack = LoopStack(
                clock, self.random, self.network, connector.deadlines, pool, self.trace, work
            )
        return self._stack

    def xds(self) -> XdsStack:
        if self._xds is None:
            self._xds = XdsStack(
                self.stack(), policies=default_policies(), resolvers=default_resolvers({})
            )
        return self._xds

    def record_flight(self) -> FlightRecorder:
        """Record the events and RPCs of the channels of this host, in virtual time."""
        recorder = FlightRecorder(is_epoch_of_clock=True)
        stack = self.stack()
        recorder.attach(stack, lambda: None if self._xds is None else self._xds.clients)
        recorder.observe_channels(stack)
        return recorder

    def leftovers(self) -> list[str]:
        """What is left of channels and connections; empty once they are closed."""
        found = [
            f"the network: an end of a connection ({each.local} to {each.remote})"
            for each in self._fabric.connections_of(self.ip)
        ]
        if self._stack is not None:
            found += [f"{self}: a subchannel"] * len(self._stack.pool)
            found += [f"{self}: a connection"] * len(self._stack.pool.connections)
            found += [f"{self}: a deadline"] * len(self._stack.deadlines)
        if self._xds is not None:
            scopes = self._xds.clients.by_scope
            found += [f"{self}: an xds client of {scope!r}" for scope in scopes]
        return found

    # Faults

    def cut(self, *others: Host) -> None:
        """Stop all bytes between this host and the others, in both directions, without a reset."""
        self._change("fault.cut", others, cuts=1)

    def heal(self, *others: Host) -> None:
        """Undo one `cut`."""
        self._change("fault.heal", others, cuts=-1)

    def hang(self, *others: Host) -> None:
        """Accept connections, but let no process on this host read or write."""
        self._change("fault.hang", others, stalls=1)

    def wake(self, *others: Host) -> None:
        """Undo one `hang`."""
        self._change("fault.wake", others, stalls=-1)

    def throttle(self, bytes_per_s: float | None, *others: Host) -> None:
        """Limit the rate to and from the others; None for no limit."""
        self.note("fault.throttle", bytes_per_s=bytes_per_s or 0.0)
        for link in self._fabric.links_of(self.ip, (other.ip for other in others)):
            link.bytes_per_s = bytes_per_s
        self._fabric.on_links_changed()

    def reset_connections(self) -> None:
        """Reset each connection from and to this host, as when its process dies."""
        for connection in self._note_connections("fault.reset"):
            connection.reset()

    def truncate_connections(self, after_bytes: int) -> None:
        """Reset each connection after this host has received this many more bytes."""
        for connection in self._note_connections("fault.truncate", after_bytes=after_bytes):
            connection.truncate(after_bytes)

    def truncate_replies(self, after_bytes: int) -> None:
        """Reset each connection after this host has sent this many more bytes."""
        for connection in self._note_connections("fault.truncate_replies", after_bytes=after_bytes):
            connection.truncate_output(after_bytes)

    def vanish_connections(self) -> None:
        """Drop all connections without a reset, as when the machine loses power."""
        for connection in self._note_connections("fault.vanish"):
            connection.vanish()

    def _note_connections(self, event: str, **fields: object) -> list[SimTransport]:
        connections = self._fabric.connections_of(self.ip)
        self.note(event, connections=len(connections), **fields)
        return connections

    def _change(
        self, event: str, others: Iterable[Host], *, cuts: int = 0, stalls: int = 0
    ) -> None:
        names = [other.name for other in others]
        self.note(event, others=names)
        for link in self._fabric.links_of(self.ip, (other.ip for other in others)):
            link.cuts = max(0, link.cuts + cuts)
            link.stalls = max(0, link.stalls + stalls)
        self._fabric.on_links_changed()

    def _on_event(self, event: Event) -> None:
        self._journal.note(self.name, event.name, **event.fields)
