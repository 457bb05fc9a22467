"""Pytest plugin: the fixture `proxyless_mesh`, a simulated mesh in virtual time for one test.

    from proxyless.pytest_plugin import proxyless_mesh as mesh  # in conftest.py, for a short name

    def test_second_backend_takes_over(mesh: World) -> None:
        near, far = mesh.backend("near"), mesh.backend("far")
        ...
        assert mesh.run(story()) == b"far"

The world has its own event loop, so the test needs no plugin for asyncio. Pytest imports this
module in every run, so it imports nothing of the package until the fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.sim.world import World


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # Pytest compiles all modules of a distribution with a plugin from their sources, to rewrite
    # assertions: seconds in each run that may not write bytecode. Those of ours check no tests.
    # Without assertion rewriting, the hook has no such attribute.
    getattr(pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("proxyless")
    group = parser.getgroup("proxyless")
    group.addoption("--mesh-seed", type=int, default=0, help="random seed of simulated worlds")


@pytest.fixture
def proxyless_mesh(request: pytest.FixtureRequest) -> Iterator[World]:
    """Clients, backends and control planes in virtual time; see `proxyless.sim.World`.

    The test fails if the world ends with an uncaught exception, or with a task, a timer or a
    connection left.
    """
    from proxyless.sim.world import World  # noqa: PLC0415 - slow, and few test runs need it

    world = World(request.config.getoption("--mesh-seed"))
    yield world
    problems = [*world.exceptions, *world.left_behind]
    if problems:
        pytest.fail(f"the world did not end well: {'; '.join(problems)}")
    if not world.loop.is_closed():
        world.loop.close()
