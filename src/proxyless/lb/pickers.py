"""Pickers that several policies use."""

from collections.abc import Callable
from typing import Final

from proxyless.base import Status
from proxyless.lb.api import QUEUE, Complete, Fail, Picker, PickInfo, PickResult
from proxyless.lb.attributes import PICK_LABELS


class QueuePicker(Picker):
    """Queues every RPC. Singleton: QUEUE_PICKER."""

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult:
        return QUEUE


QUEUE_PICKER: Final = QueuePicker()


class FailPicker(Picker):
    """Fails every RPC with one status."""

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
    """Sends every RPC to one subchannel."""

    __slots__ = ("result",)

    def __init__(self, result: Complete) -> None:
        self.result: Final = result

    def pick(self, info: PickInfo) -> PickResult:
        return self.result


class ForwardingPicker(Picker):
    """Picks with the picker of a child, and forwards its status."""

    __slots__ = ("_child",)

    def __init__(self, child: Picker) -> None:
        self._child: Final = child

    def pick(self, info: PickInfo) -> PickResult:
        return self._child.pick(info)

    @property
    def status(self) -> Status:
        return self._child.status

    @property
    def is_reconnecting(self) -> bool:
        return self._child.is_reconnecting


class NotePicker(ForwardingPicker):
    """Adds an entry to the labels of a measured RPC (`PICK_LABELS`), then picks with another."""

    __slots__ = ("_key", "_value")

    def __init__(self, child: Picker, key: str, value: str) -> None:
        super().__init__(child)
        self._key: Final = key
        self._value: Final = value

    def pick(self, info: PickInfo) -> PickResult:
        labels = info.attributes.get(PICK_LABELS)
        if labels is not None:
            labels[self._key] = self._value
        return self._child.pick(info)


class IdlePicker(Picker):
    """Queues every RPC and calls `on_pick`, which schedules a connection.

    `on_pick` is called by every pick, not only the first, and must not act at once: a pick changes
    nothing.
    """

    __slots__ = ("_on_pick",)

    def __init__(self, on_pick: Callable[[], None]) -> None:
        self._on_pick: Final = on_pick

    def pick(self, info: PickInfo) -> PickResult:
        self._on_pick()
        return QUEUE
