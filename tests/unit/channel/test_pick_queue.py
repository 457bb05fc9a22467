"""Unit tests of proxyless.channel.pick_queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.channel.pick_queue import PickQueue
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from tests.worlds.channels import UNAVAILABLE

if TYPE_CHECKING:
    from proxyless.lb.api import Picker

PICKER = FailPicker(UNAVAILABLE.status)


class QueuedRpc:
    """Records its picks; adds itself again while the picker queues it."""

    def __init__(self, queue: PickQueue, *, raises: bool = False) -> None:
        self.queue = queue
        self.is_ended = False
        self.picks: list[Picker] = []
        self.bugs: list[Exception] = []
        self._raises = raises
        queue.add(self)

    def advance(self) -> None:
        picker = self.queue.picker
        self.picks.append(picker)
        if self._raises:
            raise ValueError("picker of the test")
        if picker is QUEUE_PICKER:
            self.queue.add(self)

    def on_bug(self, source: str, error: Exception) -> None:
        self.bugs.append(error)


def test_queue_picks_for_every_call_with_the_current_picker() -> None:
    queue = PickQueue()
    calls = [QueuedRpc(queue) for _ in range(3)]
    queue.picker = PICKER
    queue.pick_all()
    assert [call.picks for call in calls] == [[PICKER]] * 3
    assert not queue.calls


def test_queue_keeps_a_call_when_its_pick_is_queued_again() -> None:
    queue = PickQueue()
    call = QueuedRpc(queue)
    queue.pick_all()
    assert list(queue.calls) == [call]
    queue.picker = PICKER
    queue.pick_all()
    assert call.picks == [QUEUE_PICKER, PICKER]


def test_queue_does_not_pick_for_a_call_that_ended_or_was_removed() -> None:
    queue = PickQueue()
    ended, removed = QueuedRpc(queue), QueuedRpc(queue)
    ended.is_ended = True
    queue.remove(removed)
    queue.remove(removed)
    queue.pick_all()
    assert (ended.picks, removed.picks) == ([], [])


def test_queue_picks_for_the_other_calls_when_one_raises() -> None:
    queue = PickQueue()
    raising, other = QueuedRpc(queue, raises=True), QueuedRpc(queue)
    queue.picker = PICKER
    queue.pick_all()
    assert [str(error) for error in raising.bugs] == ["picker of the test"]
    assert (other.picks, other.bugs) == ([PICKER], [])
