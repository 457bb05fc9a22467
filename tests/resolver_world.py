"""What tests of resolvers have in common: a name server to drive, and a listener that remembers."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxyless.base import OK, Address, Endpoint, IpAddress, Status, Trace, parse_address
from proxyless.resolver import ResolverContext, ResolverResult
from proxyless.runtime import VirtualClock


class NameServer:
    """A Network that knows only names. Each look-up waits until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.under_way: list[asyncio.Future[list[IpAddress]]] = []
        self.under_way_max = 0

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        question: asyncio.Future[list[IpAddress]] = asyncio.get_running_loop().create_future()
        self.asked.append((host, port))
        self.under_way.append(question)
        self.under_way_max = max(self.under_way_max, len(self.under_way))
        try:
            return await question
        finally:
            self.under_way.remove(question)

    async def answer(self, *addresses: str) -> None:
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


class Middle:
    """A generator without surprises: draws the middle, so that jitter changes nothing."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2

    def randrange(self, stop: int, /) -> int:
        return stop // 2

    def getrandbits(self, k: int, /) -> int:
        return 1 << (k - 1)

    def shuffle(self, x: Any, /) -> None:  # noqa: ANN401 - as the Protocol says
        return


@dataclass
class Recorder:
    """A listener that keeps what it hears and says what the test told it to say."""

    results: list[ResolverResult] = field(default_factory=list)
    reply: Status = OK
    # Runs while the result is being heard.
    react: Callable[[], None] = lambda: None
    has_heard: asyncio.Event = field(default_factory=asyncio.Event)

    def on_result(self, result: ResolverResult) -> Status:
        self.results.append(result)
        self.has_heard.set()
        self.react()
        return self.reply

    @property
    def addresses(self) -> list[list[str]]:
        """The addresses of each result that has some, one text per endpoint."""
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
    """Everything that a resolver acts through, in the test's hands."""

    options: dict[str, object] = field(default_factory=dict)
    network: NameServer = field(default_factory=NameServer)
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(now_s=1000.0))
    trace: Trace = field(default_factory=Trace)
    heard: Recorder = field(default_factory=Recorder)

    @property
    def context(self) -> ResolverContext:
        return ResolverContext(self.network, self.clock, Middle(), self.trace, self.options)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that falls due on the way."""
        await settle()
        self.clock.advance(seconds)
        await settle()


async def settle() -> None:
    """Let everything run that can run without time passing."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


def to_ip(text: str) -> IpAddress:
    address = parse_address(text)
    assert isinstance(address, IpAddress)
    return address


def to_endpoints(*texts: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint((parse_address(text),)) for text in texts)
