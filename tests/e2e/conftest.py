"""What end-to-end tests have in common: a client of ours on either loop."""

from collections.abc import AsyncIterator, Mapping

import pytest

from tests.transport_world import Client, LoopFactory, choose_loops


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return choose_loops(item)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()
