"""Fixtures of end-to-end tests: a transport client on either loop."""

from collections.abc import AsyncIterator, Mapping

import pytest

from tests.worlds.transports import LoopFactory, TransportClient, choose_loops


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return choose_loops(item)


@pytest.fixture
async def client() -> AsyncIterator[TransportClient]:
    client = TransportClient()
    yield client
    await client.close()
