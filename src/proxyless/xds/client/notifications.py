"""Notifications of resource watchers, and the queue that delivers them once per turn of the loop.

Specs: A88 (watcher interface).

No watcher is called inside a call to the client. Other deferred work of the client goes through the
same queue, so there is one order: the next message of a stream is read behind the notifications of
the one before, and a control plane cannot be faster than the watchers. Many notifications take
several turns.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.runtime import Clock, Soon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Status
    from proxyless.xds.client.api import ResourceWatcher

# Notifications and callbacks per turn.
ITEMS_PER_TURN: Final = 1_000

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
    """One watcher of one resource. The watcher is not called after `cancel`."""

    __slots__ = ("is_cancelled", "watcher")

    def __init__(self, watcher: ResourceWatcher[Any]) -> None:
        self.watcher = watcher
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def deliver(self, notification: Notification) -> None:
        if not self.is_cancelled:
            try:
                notification.notify(self.watcher)
            except Exception:
                # A bug of one watcher has no effect on the others and on the stream.
                LOGGER.exception("xds watcher %r raised", self.watcher)


class NotificationQueue:
    """Notifications and callbacks in their order, run together in the next turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._items: deque[Callable[[], None]] = deque()
        self._run_soon = Soon(clock, self._run)
        self._is_closed = False

    def notify(self, watches: Iterable[Watch], notification: Notification) -> None:
        """Call these watchers in the next turn, unless they are cancelled by then."""
        for watch in watches:
            self.call(partial(watch.deliver, notification))

    def call(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn, behind the present items."""
        if not self._is_closed:
            self._items.append(callback)
            self._run_soon.request()

    def close(self) -> None:
        """Discard all items. Idempotent."""
        self._is_closed = True
        self._items.clear()
        self._run_soon.cancel()

    def _run(self) -> None:
        """Run the first of the present items; those that they add run in a later turn."""
        try:
            count = len(self._items)
            for _ in range(min(ITEMS_PER_TURN, count)):
                # A watcher may close the client.
                if self._is_closed:
                    return
                self._items.popleft()()
        finally:
            # If a callback raised, the others run in the next turn.
            if self._items:
                self._run_soon.request()
