"""Who wants to know the state of a blocking channel, and what were they told?

A callback is told the state when it subscribes, and whenever that changes, in the channel's thread
for this.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from proxyless.front.conversions import to_grpc_state

if TYPE_CHECKING:
    from proxyless.base import State
    from proxyless.channel import Channel
    from proxyless.front.sync.background import CallbackThread

StateCallback = Callable[[grpc.ChannelConnectivity], None]


class Subscriptions:
    """Who wants to know the state of a channel. Driven by the loop and by any thread.

    Apart from the channel, which the core must not keep alive.
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
                with suppress(ValueError):  # Another thread closes the channel.
                    self._all.remove(subscription)
                return

    def clear(self) -> None:
        for subscription in list(self._all):
            subscription.is_active = False
        self._all.clear()

    def watch(self, core: Channel, callbacks: CallbackThread) -> None:
        """Follow the state of this core. On the loop."""

        def on_state(state: State) -> None:
            for subscription in list(self._all):
                subscription.post(state, callbacks)

        core.watch_state(on_state)


class Subscription:
    """One callback."""

    def __init__(self, callback: StateCallback) -> None:
        self.callback = callback
        self.is_active = True
        # What the callback was told last; changed in the thread of callbacks.
        self._told: State | None = None

    def post(self, state: State, callbacks: CallbackThread) -> None:
        callbacks.post(lambda: self._tell(state))

    def _tell(self, state: State) -> None:
        if self.is_active and state is not self._told:
            self._told = state
            self.callback(to_grpc_state(state))
