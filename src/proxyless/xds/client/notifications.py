"""Notifications of resource watchers, and the queue that delivers them once per turn of the loop.

Specs: A88 (watcher interface).

No watcher is called inside a call to the client, because its notification waits for the next turn
of the event loop. Other work of the client that has to wait for the next turn goes through the same
queue, so there is one order: for example, the next message of a stream is read behind the
notifications of the one before, and a control plane cannot be faster than the watchers.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.runtime import IDLE_TIMER, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Status
    from proxyless.runtime import Clock
    from proxyless.xds.client.api import ResourceWatcher

LOGGER: Final = logging.getLogger("proxyless.xds.client")


@frozen
class ResourceNotification:
    """Arguments of `on_resource`: a resource, or a status."""

    resource: Any

    def notify(self, watcher: ResourceWatcher[Any]) -> None:
        watcher.on_resource(self.resource)


@frozen
class AmbientErrorNotification:
    """Arguments of `on_ambient_error`."""

    status: Status

    def notify(self, watcher: ResourceWatcher[Any]) -> None:
        watcher.on_ambient_error(self.status)


Notification = ResourceNotification | AmbientErrorNotification


class Watch:
    """One watcher of one resource. The watcher is not called after `is_cancelled` is set."""

    __slots__ = ("is_cancelled", "watcher")

    def __init__(self, watcher: ResourceWatcher[Any]) -> None:
        self.watcher = watcher
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class NotificationQueue:
    """Notifications and callbacks in their order, run together in the next turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: deque[tuple[Watch, Notification] | Callable[[], None]] = deque()
        self._timer: Timer = IDLE_TIMER
        self._is_closed = False

    def notify(self, watches: Iterable[Watch], notification: Notification) -> None:
        """Call these watchers in the next turn, unless they are cancelled before."""
        for watch in watches:
            self._items.append((watch, notification))
        self._schedule()

    def call(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn, behind everything that is in the queue now."""
        self._items.append(callback)
        self._schedule()

    def close(self) -> None:
        """Call nothing any more. Idempotent."""
        self._is_closed = True
        self._items.clear()
        self._timer.cancel()

    def _schedule(self) -> None:
        if not self._timer.pending and not self._is_closed:
            self._timer = self._clock.call_later(0, self._run)

    def _run(self) -> None:
        """Run what is queued now; what is added by this runs in the next turn."""
        try:
            for _ in range(len(self._items)):
                # A watcher may close the client.
                if self._is_closed:
                    return
                item = self._items.popleft()
                if callable(item):
                    item()
                elif not item[0].is_cancelled:
                    _call(*item)
        finally:
            # A callback that raised does not keep the others from being called.
            if self._items:
                self._schedule()


def _call(watch: Watch, notification: Notification) -> None:
    try:
        notification.notify(watch.watcher)
    except Exception:
        # One watcher's bug must not keep the others, or the stream, from going on.
        LOGGER.exception("xds watcher %r raised", watch.watcher)
