"""Subscriptions to the connectivity state of a blocking channel.

A callback is called with the state when it subscribes and whenever the state changes, in the
channel's thread for state callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

import grpc

from proxyless.front.conversions import to_grpc_state

if TYPE_CHECKING:
    from proxyless.base import State
    from proxyless.channel import Channel
    from proxyless.front.sync.background import CallbackThread

StateCallback = Callable[[grpc.ChannelConnectivity], None]


class Subscriptions:
    """The subscriptions of a channel. Used by any thread.

    Not part of the channel, because the core refers to it and must not keep the channel alive.
    """

    def __init__(self) -> None:
        self._all: list[Subscription] = []

    def add(self, callback: StateCallback) -> Subscription:
        subscription = Subscription(callback)
        self._all.append(subscription)
        return subscription

    def remove(self, callback: StateCallback) -> None:
        for subscription in list(self._all):
            if subscription.callback == callback:
                subscription.is_active = False
                with suppress(ValueError):  # Another thread has closed the channel.
                    self._all.remove(subscription)
                return

    def clear(self) -> None:
        for subscription in list(self._all):
            subscription.is_active = False
        self._all.clear()

    def watch(self, core: Channel, callbacks: CallbackThread) -> None:
        """Watch the state of this core. Called on the loop."""

        def on_state(state: State) -> None:
            for subscription in list(self._all):
                subscription.post(state, callbacks)

        core.watch_state(on_state)


class Subscription:
    """One callback."""

    def __init__(self, callback: StateCallback) -> None:
        self.callback = callback
        # As in grpcio, the callback runs with the context variables of `subscribe`.
        self._context = copy_context()
        self.is_active = True
        # Changed in the thread for state callbacks.
        self._last_notified: State | None = None

    def post(self, state: State, callbacks: CallbackThread) -> None:
        callbacks.post(lambda: self._notify(state))

    def _notify(self, state: State) -> None:
        if self.is_active and state is not self._last_notified:
            self._last_notified = state
            self._context.run(self.callback, to_grpc_state(state))
