"""Counted references to clusters: a cluster stays in the LB config while it has any.

Specs: A31-32..42 (removal in two steps), A74-48.

The current selector holds each cluster of its routes, and each RPC that is not committed holds its
own. A reference owns a subscription to the cluster's resources. When the last holder releases it,
the resolver drops it and leaves the cluster out of the next LB config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.xds.config import ClusterSubscription, ClusterSubscriptions

# Children of xds_cluster_manager: a cluster and a plugin may have the same name.
CLUSTER_PREFIX: Final = "cluster:"
PLUGIN_PREFIX: Final = "cluster_specifier_plugin:"


class ClusterRef:
    """The holders of one child of xds_cluster_manager, and the child's subscription."""

    __slots__ = ("_on_unused", "count", "key", "subscription")

    def __init__(
        self, key: str, subscription: ClusterSubscription | None, on_unused: Callable[[], None]
    ) -> None:
        self.key = key
        # None for a plugin's child: its clusters are found at run time.
        self.subscription = subscription
        self._on_unused = on_unused
        # Selectors, and RPCs that are not committed (A31-32).
        self.count = 0

    def release(self) -> None:
        """Called by the selector, and as the commit hook of RPCs."""
        self.count -= 1
        if self.count == 0:
            self._on_unused()


class ClusterRefs:
    """The references of one resolver, by the child's key."""

    def __init__(self, on_unused: Callable[[], None]) -> None:
        self._on_unused = on_unused
        self._refs: dict[str, ClusterRef] = {}

    def acquire(self, key: str, subscriptions: ClusterSubscriptions) -> ClusterRef:
        """Add a holder of this child."""
        ref = self._refs.get(key)
        if ref is None:
            subscription = None
            if key.startswith(CLUSTER_PREFIX):
                subscription = subscriptions.subscribe(key.removeprefix(CLUSTER_PREFIX))
            ref = self._refs[key] = ClusterRef(key, subscription, self._on_unused)
        ref.count += 1
        return ref

    def drop_unused(self) -> None:
        """Remove the references without holders, and their subscriptions (A31-35)."""
        for key, ref in list(self._refs.items()):
            if ref.count == 0:
                del self._refs[key]
                if ref.subscription is not None:
                    ref.subscription.release()

    def __len__(self) -> int:
        return len(self._refs)

    @property
    def keys(self) -> list[str]:
        return list(self._refs)

    def count(self, key: str) -> int:
        ref = self._refs.get(key)
        return 0 if ref is None else ref.count
