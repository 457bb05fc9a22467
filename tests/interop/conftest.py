"""What interop tests have in common: a client of ours, and servers of either kind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import uvloop

from tests.certificates import CertificateAuthority
from tests.interop.backends import BACKENDS, Backend, ServerOptions
from tests.transport_world import Client

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories() -> Mapping[str, LoopFactory]:
    """Run every test on both loops that users have."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


Serve = Callable[..., Awaitable[Backend]]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()


@pytest.fixture(params=BACKENDS)
async def serve(request: pytest.FixtureRequest) -> AsyncIterator[Serve]:
    """Start servers of one kind, with the fields of `ServerOptions`."""
    backends: list[Backend] = []

    async def start(**options: object) -> Backend:
        backend = BACKENDS[request.param]()
        await backend.start(ServerOptions(**options))  # type: ignore[arg-type]
        backends.append(backend)
        return backend

    yield start
    for backend in backends:
        await backend.stop()


@pytest.fixture(scope="session")
def authority() -> CertificateAuthority:
    return CertificateAuthority()
