"""The pytest fixture `mesh`: a world in virtual time for one test.

    def test_second_backend_takes_over(mesh: World) -> None:
        near, far = mesh.backend("near"), mesh.backend("far")
        ...
        assert mesh.run(story()) == b"far"

It needs no plugin for asyncio: the world brings its own loop. A test fails if the world ends with
an exception that nobody caught, or with anything left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.sim.world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--mesh-seed 7` gives every world another chance."""
    group = parser.getgroup("proxyless")
    group.addoption("--mesh-seed", type=int, default=0, help="the seed of simulated worlds")


@pytest.fixture
def mesh(request: pytest.FixtureRequest) -> Iterator[World]:
    """Clients, backends and control planes in virtual time; see `proxyless.sim.World`."""
    from proxyless.sim.world import World  # noqa: PLC0415 - most test runs use no world

    world = World(request.config.getoption("--mesh-seed"))
    yield world
    problems = [*world.exceptions, *world.left_behind]
    if problems:
        pytest.fail(f"the world did not end well: {'; '.join(problems)}")
    if not world.loop.is_closed():
        world.loop.close()
