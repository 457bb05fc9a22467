"""Resolver under test, with a fake name server and a listener that records results."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxyless.base import OK, Address, IpAddress, Status, Trace, parse_address
from proxyless.resolver import ResolverContext, ResolverOptions, ResolverResult
from proxyless.resolver.api import DnsTimes
from proxyless.runtime import VirtualClock
from tests.worlds.fake_sockets import turn


class NameServer:
    """Network that only resolves names. Each query waits for the test's response."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, int]] = []
        self.under_way: list[asyncio.Future[list[IpAddress]]] = []
        self.under_way_max = 0

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        query: asyncio.Future[list[IpAddress]] = asyncio.get_running_loop().create_future()
        self.queries.append((host, port))
        self.under_way.append(query)
        self.under_way_max = max(self.under_way_max, len(self.under_way))
        try:
            return await query
        finally:
            self.under_way.remove(query)

    async def respond(self, *addresses: str) -> None:
        self.under_way[0].set_result([to_ip(text) for text in addresses])
        await settle()

    async def fail(self, error: BaseException) -> None:
        self.under_way[0].set_exception(error)
        await settle()

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], Any],
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, Any]:
        raise AssertionError(f"a resolver does not connect, wanted {address}")

    def start_connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        on_failed: Callable[[OSError], None],
    ) -> None:
        raise AssertionError(f"a resolver does not connect, wanted {address}")

    async def start_tls(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        *,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.Transport:
        raise AssertionError(f"a resolver has no peer, wanted {server_hostname}")

    async def listen(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Any:  # noqa: ANN401 - never returns
        raise AssertionError(f"a resolver does not listen, wanted {address}")


class MidpointRandom:
    """Random generator that returns the middle of each range, so there is no jitter."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2

    def randrange(self, stop: int, /) -> int:
        return stop // 2

    def getrandbits(self, k: int, /) -> int:
        return 1 << (k - 1)

    def shuffle(self, x: Any, /) -> None:  # noqa: ANN401 - declared by the Protocol
        return


@dataclass
class ResultRecorder:
    """Listener that records results, and returns `reply`."""

    results: list[ResolverResult] = field(default_factory=list)
    reply: Status = OK
    # Called inside `on_result`.
    react: Callable[[], None] = lambda: None
    has_result: asyncio.Event = field(default_factory=asyncio.Event)

    def on_result(self, result: ResolverResult) -> Status:
        self.results.append(result)
        self.has_result.set()
        self.react()
        return self.reply

    @property
    def addresses(self) -> list[list[str]]:
        """Addresses of each result that has some, one text per endpoint."""
        return [
            [str(endpoint) for endpoint in result.endpoints]
            for result in self.results
            if not isinstance(result.endpoints, Status)
        ]

    @property
    def failures(self) -> list[str]:
        return [
            str(result.endpoints) for result in self.results if isinstance(result.endpoints, Status)
        ]


@dataclass
class ResolverWorld:
    """Clock, network and listener of a resolver."""

    times: DnsTimes = field(default_factory=DnsTimes)
    network: NameServer = field(default_factory=NameServer)
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(now_s=1000.0))
    trace: Trace = field(default_factory=Trace)
    listener: ResultRecorder = field(default_factory=ResultRecorder)

    @property
    def context(self) -> ResolverContext:
        options = ResolverOptions(dns=self.times)
        return ResolverContext(self.network, self.clock, MidpointRandom(), self.trace, options)

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and run what is due."""
        await settle()
        self.clock.advance(seconds)
        await settle()


async def settle() -> None:
    """Run what is due without advancing the clock."""
    for _ in range(10):
        await turn()


def to_ip(text: str) -> IpAddress:
    address = parse_address(text)
    assert isinstance(address, IpAddress)
    return address
