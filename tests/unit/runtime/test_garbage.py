"""Unit tests of proxyless.runtime.garbage."""

import gc
import os
import weakref
from collections.abc import Iterator

import pytest

import proxyless
from proxyless.runtime.garbage import DEFERRED_THRESHOLD, FULL_COLLECTIONS, FullCollections

THRESHOLDS = (701, 11, 12)


class Node:
    """An object in a reference cycle."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def unchanged_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    yield
    gc.set_threshold(*before)
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


def test_full_collections_are_deferred_until_the_last_queue_resumes() -> None:
    collections = FullCollections()
    collections.defer()
    collections.defer()
    assert gc.get_threshold() == (*THRESHOLDS[:2], DEFERRED_THRESHOLD)
    collections.resume()
    assert gc.get_threshold() == (*THRESHOLDS[:2], DEFERRED_THRESHOLD)
    collections.resume()
    assert gc.get_threshold() == THRESHOLDS


def test_thresholds_that_the_application_sets_during_a_deferral_stay() -> None:
    collections = FullCollections()
    collections.defer()
    gc.set_threshold(5000, 20, 30)
    collections.resume()
    assert gc.get_threshold() == (5000, 20, 30)


def test_higher_threshold_of_the_application_stays() -> None:
    gc.set_threshold(700, 10, 2 * DEFERRED_THRESHOLD)
    collections = FullCollections()
    collections.defer()
    assert gc.get_threshold() == (700, 10, 2 * DEFERRED_THRESHOLD)
    collections.resume()
    assert gc.get_threshold() == (700, 10, 2 * DEFERRED_THRESHOLD)


@pytest.mark.parametrize("is_due", [True, False])
def test_full_collection_that_was_deferred_runs_at_the_end(is_due: bool) -> None:
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    collections = FullCollections()
    collections.defer()
    kept: list[list[object]] = []
    for _ in range(THRESHOLDS[2] + 1 if is_due else 1):
        # More objects that stay than a quarter of those that were there.
        kept += [[] for _ in range(100_000)]
        gc.collect(1)
    assert gc.get_stats()[2]["collections"] == before
    # Their memory is used for the next lists, which Python does not count.
    del kept[:50]
    collections.resume()
    assert gc.get_stats()[2]["collections"] == before + is_due
    assert gc.get_threshold() == THRESHOLDS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_full_collections_are_not_deferred_in_the_child_of_a_fork() -> None:
    """The loops of its parent do not run there, so their queues never resume."""
    FULL_COLLECTIONS.defer()
    try:
        child = os.fork()
        if not child:
            os._exit(gc.get_threshold() != THRESHOLDS)
    finally:
        FULL_COLLECTIONS.resume()
    assert os.waitpid(child, 0)[1] == 0


def test_full_collections_are_deferred_in_a_child_in_which_a_queue_of_its_parent_resumes() -> None:
    collections = FullCollections()
    collections.defer()
    collections.forget_queues()
    collections.resume()
    assert gc.get_threshold() == THRESHOLDS
    collections.defer()
    assert gc.get_threshold() == (*THRESHOLDS[:2], DEFERRED_THRESHOLD)
    collections.resume()
    assert gc.get_threshold() == THRESHOLDS
