"""What is a machine of the simulated mesh?

A host has a name, an address, a network interface, chance of its own, and what the channels on it
share. Faults happen to hosts: their links are cut or stall, their connections break.
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
from proxyless.runtime import LogTrace, LoopClock
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
    from proxyless.sim.loop import SimLoop
    from proxyless.sim.network import Fabric


class Host:
    """One machine. Driven by who runs on it, and by faults."""

    def __init__(
        self, name: str, ip: str, seed: int, parts: tuple[SimLoop, Fabric, Journal]
    ) -> None:
        # Fixed at construction.
        self.name: Final = name
        self.ip: Final = ip
        self.random: Final = derived_random(seed, name)
        self._loop, self._fabric, self._journal = parts
        self.network: Final = SimNetwork(self._fabric, ip)
        self.trace: Final = LogTrace()
        self.trace.subscribe(self._on_event)
        # Made when the first channel asks, because that happens on the running loop.
        self._stack: LoopStack | None = None
        self._xds: XdsStack | None = None

    def __str__(self) -> str:
        return self.name

    def note(self, event: str, /, **fields: object) -> None:
        """Something happened here."""
        self._journal.note(self.name, event, **fields)

    # For channels

    def channel(
        self,
        target: str,
        *,
        options: Iterable[tuple[str, Any]] | None = None,
        bootstrap: Mapping[str, object] | None = None,
        registries: Registries | None = None,
    ) -> AioChannel:
        """What `proxyless.aio.insecure_channel` gives on a real machine.

        The proxies of the machine that runs the simulation are not asked, unless options say so.
        """
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
            pool = SubchannelPool(connector, clock=clock, random=self.random, trace=self.trace)
            self._stack = LoopStack(
                clock, self.random, self.network, connector.deadlines, pool, self.trace
            )
        return self._stack

    def xds(self) -> XdsStack:
        if self._xds is None:
            self._xds = XdsStack(
                self.stack(), policies=default_policies(), resolvers=default_resolvers({})
            )
        return self._xds

    def leftovers(self) -> list[str]:
        """What channels have left behind; nothing, once they are closed."""
        found: list[str] = []
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
        """Nothing passes between this host and the others, both ways; nobody is told."""
        self._change("fault.cut", others, cuts=1)

    def heal(self, *others: Host) -> None:
        """Undo one `cut`."""
        self._change("fault.heal", others, cuts=-1)

    def hang(self, *others: Host) -> None:
        """Its kernel accepts connections, and nothing on it reads or writes."""
        self._change("fault.hang", others, stalls=1)

    def wake(self, *others: Host) -> None:
        """Undo one `hang`."""
        self._change("fault.wake", others, stalls=-1)

    def throttle(self, bytes_per_s: float | None, *others: Host) -> None:
        """What it sends and what it is sent passes this slowly; None is without limit."""
        self.note("fault.throttle", bytes_per_s=bytes_per_s or 0.0)
        for link in self._fabric.links_of(self.ip, (other.ip for other in others)):
            link.bytes_per_s = bytes_per_s
        self._fabric.on_links_changed()

    def reset_connections(self) -> None:
        """Each connection from and to this host breaks, as when its process dies."""
        connections = self._fabric.connections_of(self.ip)
        self.note("fault.reset", connections=len(connections))
        for connection in connections:
            connection.reset()

    def truncate_connections(self, after_bytes: int) -> None:
        """Each connection breaks when this host has received so much more, however it falls."""
        connections = self._fabric.connections_of(self.ip)
        self.note("fault.truncate", connections=len(connections), after_bytes=after_bytes)
        for connection in connections:
            connection.truncate(after_bytes)

    def truncate_replies(self, after_bytes: int) -> None:
        """Each connection breaks when this host has sent so much more, however it falls."""
        connections = self._fabric.connections_of(self.ip)
        self.note("fault.truncate_replies", connections=len(connections), after_bytes=after_bytes)
        for connection in connections:
            connection.truncate_output(after_bytes)

    def vanish_connections(self) -> None:
        """This host forgets its connections without a word, as when it loses power."""
        connections = self._fabric.connections_of(self.ip)
        self.note("fault.vanish", connections=len(connections))
        for connection in connections:
            connection.vanish()

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
