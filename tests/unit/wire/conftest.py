"""Fixture for all tests of this folder: every state change of a stream must be in the table."""

import pytest

from proxyless.wire.stream import Stream
from proxyless.wire.stream_states import TRANSITIONS, HalfState

Change = tuple[str, HalfState, HalfState]

EDGES = {(state, after) for state, row in TRANSITIONS.items() for after in row.values()}


class CheckedState:
    """Slot of one direction's state: records each change, rejects those not in the table."""

    def __init__(self, direction: str, changes: set[Change]) -> None:
        self._direction = direction
        self._slot = Stream.__dict__[direction]
        self._changes = changes

    def __get__(self, stream: Stream, owner: type) -> HalfState:
        state: HalfState = self._slot.__get__(stream, owner)
        return state

    def __set__(self, stream: Stream, after: HalfState) -> None:
        try:
            before = self._slot.__get__(stream, Stream)
        except AttributeError:
            assert after is HalfState.IDLE, f"a new stream is {after.name}"
        else:
            assert (before, after) in EDGES, f"{self._direction}: {before.name} to {after.name}"
            self._changes.add((self._direction, before, after))
        self._slot.__set__(stream, after)


@pytest.fixture(autouse=True)
def state_changes(monkeypatch: pytest.MonkeyPatch) -> set[Change]:
    """The state changes so far, of all streams of the test."""
    changes: set[Change] = set()
    for direction in ("sending", "receiving"):
        monkeypatch.setattr(Stream, direction, CheckedState(direction, changes))
    return changes
