"""Fixtures of interop tests: our transport client, and grpcio servers of both kinds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.certificates import CertificateAuthority
from tests.generated_protos import Protos, generate_protos
from tests.interop.backends import BACKENDS, Backend, ServerOptions
from tests.interop.drop_in import Both
from tests.worlds.grpcio_peers import NamedBackend, backends
from tests.worlds.transports import LoopFactory, TransportClient, choose_loops
from tools.envoy_env import CannotInstallError, find_envoy

Serve = Callable[..., Awaitable[Backend]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return choose_loops(item)


@pytest.fixture
async def client() -> AsyncIterator[TransportClient]:
    client = TransportClient()
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


@pytest.fixture
async def two() -> AsyncIterator[list[NamedBackend]]:
    """Backends that answer with their names, a and b."""
    async with backends("a", "b") as started:
        yield started


@pytest.fixture(scope="module")
def binary() -> Path:
    """Envoy's; the first test may have to download it."""
    try:
        return find_envoy()
    except CannotInstallError as error:
        pytest.skip(str(error))
