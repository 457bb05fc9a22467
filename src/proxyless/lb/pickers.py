"""Pickers that many policies need.

A picker of one's own names `Picker` as its base and has `__slots__`.
"""

from collections.abc import Callable
from typing import Final

from proxyless.base import Status
from proxyless.lb.api import QUEUE, Complete, Fail, Picker, PickInfo, PickResult


class QueuePicker(Picker):
    """Nothing is known yet. There is one: QUEUE_PICKER."""

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult:
        return QUEUE


# Makes every RPC wait.
QUEUE_PICKER: Final = QueuePicker()


class FailPicker(Picker):
    """Nothing works, and this is why."""

    __slots__ = ("_result",)

    def __init__(self, status: Status) -> None:
        assert not status.is_ok, "a failure has a code other than OK"
        self._result: Final = Fail(status)

    def pick(self, info: PickInfo) -> PickResult:
        return self._result

    @property
    def status(self) -> Status:
        return self._result.status


class SubchannelPicker(Picker):
    """Everything goes to one subchannel."""

    __slots__ = ("result",)

    def __init__(self, result: Complete) -> None:
        self.result: Final = result

    def pick(self, info: PickInfo) -> PickResult:
        return self.result


class IdlePicker(Picker):
    """Nobody needed a connection so far; a pick says that somebody does now.

    Every pick says so, not only the first: the owner knows whether it is news. It must not act on
    it at once, because a picker changes nothing during a pick.
    """

    __slots__ = ("_on_pick",)

    def __init__(self, on_pick: Callable[[], None]) -> None:
        self._on_pick: Final = on_pick

    def pick(self, info: PickInfo) -> PickResult:
        self._on_pick()
        return QUEUE
