"""Health checkers of one event loop, by subchannel and question. Watches share them (A17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.health_checker import HealthChecker
    from proxyless.channel.health_watch import Question
    from proxyless.channel.subchannel import Subchannel


class HealthCheckers:
    """Makes a checker for the first watch, and closes it after the last."""

    def __init__(self, tools: SubchannelTools) -> None:
        self._tools = tools
        self._checkers: dict[tuple[Subchannel, Question], HealthChecker] = {}

    def __len__(self) -> int:
        return len(self._checkers)

    def acquire(self, subchannel: Subchannel, question: Question) -> HealthChecker:
        """The checker of this question; to be released when it has no watch any more."""
        key = (subchannel, question)
        checker = self._checkers.get(key)
        if checker is None:
            checker = self._checkers[key] = _make_checker(subchannel, question, self._tools)
            checker.start()
        return checker

    def release(self, subchannel: Subchannel, question: Question) -> None:
        self._checkers.pop((subchannel, question)).close()


def _make_checker(
    subchannel: Subchannel, question: Question, tools: SubchannelTools
) -> HealthChecker:
    from proxyless.channel.health_checker import (  # noqa: PLC0415 - with the first question
        HealthChecker,
    )

    return HealthChecker(subchannel, question, tools)
