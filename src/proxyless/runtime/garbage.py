"""Garbage collection of a process with many endpoints: `freeze`, and deferred full collections.

Python visits all objects of the process each time that their number has grown by a quarter. While
thousands of endpoints are connected, that is a third of the processor time, and finds nothing: the
objects are in use. So full collections are deferred while a work queue has work for several turns.
"""

import gc
from threading import RLock
from typing import Final

from proxyless.runtime.forks import call_after_fork_in_child

# Collections of the second generation before a full one; Python's default is 10. A number, so that
# full collections never stop, even if an event loop is abandoned while it has work. 200 are enough
# for about 15,000 endpoints.
DEFERRED_THRESHOLD: Final = 200


def freeze() -> int:
    """Collect garbage, and exclude all objects that are left from later collections.

    A process with thousands of endpoints has hundreds of thousands of objects that live as long as
    it does, and each full collection visits them: nothing else runs for some tenths of a second.
    Call this once the channels are connected. It is for the whole process, not only for this
    library, and takes as long as a full collection. Excluded objects are freed as usual when the
    last reference is gone, but not those in a reference cycle: after many endpoints have left, call
    it again, which collects those too. Returns the number of excluded objects.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


class FullCollections:
    """Raises the process's threshold of full collections while at least one queue defers them.

    The event loops of several threads may share it, hence the lock; a collection inside of it may
    delete a queue, which takes it again. A threshold that the application sets meanwhile is left
    alone.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._queues = 0
        # The application's thresholds; None while nothing is deferred.
        self._before: tuple[int, int, int] | None = None

    def defer(self) -> None:
        """Called once by a queue, until it calls `resume`."""
        with self._lock:
            self._queues += 1
            if self._queues == 1:
                first, second, full = gc.get_threshold()
                if full < DEFERRED_THRESHOLD:
                    self._before = (first, second, full)
                    gc.set_threshold(first, second, DEFERRED_THRESHOLD)

    def resume(self) -> None:
        with self._lock:
            # A queue of the parent of this process is not counted.
            self._queues = max(self._queues - 1, 0)
            before = self._before
            if self._queues or before is None:
                return
            self._before = None
            if gc.get_threshold() == (*before[:2], DEFERRED_THRESHOLD):
                _collect_if_due(before)

    def forget_queues(self) -> None:
        """Called in the child of a fork: queues of the parent's loops may never resume."""
        self._lock = RLock()
        self._queues = 0
        before, self._before = self._before, None
        if before is not None and gc.get_threshold() == (*before[:2], DEFERRED_THRESHOLD):
            gc.set_threshold(*before)


def _collect_if_due(thresholds: tuple[int, int, int]) -> None:
    """Set the thresholds, and let Python decide now whether a full collection is due.

    Otherwise that would be some thousand allocations later, in the middle of the next update.
    """
    if gc.get_count()[2] > thresholds[2]:
        gc.set_threshold(1, *thresholds[1:])
        # Python decides when containers are allocated. Sets are; lists may come from a free list.
        _ = [set(), set(), set()]
    gc.set_threshold(*thresholds)


FULL_COLLECTIONS: Final = FullCollections()
call_after_fork_in_child(FULL_COLLECTIONS.forget_queues)
