"""HealthCheckers: the health checkers of one event loop, shared by watches (A17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.health_checker import HealthChecker
    from proxyless.channel.health_watch import HealthRequest
    from proxyless.channel.subchannel import Subchannel


class HealthCheckers:
    """Creates a checker for the first watch, and closes it after the last."""

    def __init__(self, tools: SubchannelTools) -> None:
        self._tools = tools
        self._checkers: dict[tuple[Subchannel, HealthRequest], HealthChecker] = {}

    def __len__(self) -> int:
        return len(self._checkers)

    def acquire(self, subchannel: Subchannel, request: HealthRequest) -> HealthChecker:
        """The checker of this request; the last watch to leave it releases it."""
        key = (subchannel, request)
        checker = self._checkers.get(key)
        if checker is None:
            from proxyless.channel.health_checker import HealthChecker  # noqa: PLC0415 - few use it

            checker = self._checkers[key] = HealthChecker(subchannel, request, self._tools)
            checker.start()
        return checker

    def release(self, subchannel: Subchannel, request: HealthRequest) -> None:
        self._checkers.pop((subchannel, request)).close()
