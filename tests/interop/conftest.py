"""What interop tests have in common: a client of ours, and servers of either kind."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from tests.certificates import CertificateAuthority
from tests.generated_protos import Protos, generate_protos
from tests.interop.backends import BACKENDS, Backend, ServerOptions
from tests.interop.drop_in import Both
from tests.transport_world import Client, LoopFactory, choose_loops

Serve = Callable[..., Awaitable[Backend]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return choose_loops(item)


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


@pytest.fixture(scope="session")
def protos() -> Protos:
    return generate_protos()


@pytest.fixture
def both(protos: Protos) -> Both:
    return Both(protos)
