"""Unit tests of proxyless.runtime.garbage."""

import gc
import weakref
from collections.abc import Iterator

import pytest

import proxyless


class Node:
    """An object in a reference cycle."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_frozen_objects_are_not_visited_by_collections() -> None:
    node = Node()
    assert any(each is node for each in gc.get_objects())
    assert proxyless.freeze() > 1000
    # `get_objects` returns what a full collection visits.
    assert not any(each is node for each in gc.get_objects())


def test_garbage_is_collected_before_and_by_the_next_call() -> None:
    kept, garbage = Node(), weakref.ref(Node())
    proxyless.freeze()
    assert garbage() is None
    later = weakref.ref(kept)
    del kept
    gc.collect()
    assert later() is not None
    proxyless.freeze()
    assert later() is None
