"""Interface of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tools.simulation.scenario import Scenario


class Workload(Protocol):
    """An activity that starts with a run and ends by itself."""

    @property
    def name(self) -> str: ...

    async def start(self, scenario: Scenario) -> None: ...
