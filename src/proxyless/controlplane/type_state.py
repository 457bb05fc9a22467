"""State of one resource type on one ADS stream of the server side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.answers import Nack, Verdict
from proxyless.controlplane.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Collection

    from proxyless.controlplane.resource import Resource
    from proxyless.controlplane.snapshot import Resources

_NAME_OVERHEAD_BYTES: Final = 100


@dataclass(slots=True)
class TypeState:
    """State of one resource type on one stream."""

    # From the requests.
    subscription: Subscription = field(default_factory=Subscription)
    # Estimate for the names of the subscription.
    held_bytes: int = 0
    has_new_names: bool = False
    # Incremental: names to answer, and versions that the client has, until the next response.
    new_names: set[str] = field(default_factory=set)
    initial_versions: dict[str, str] = field(default_factory=dict)
    # From the responses.
    last_sent: dict[str, Resource] = field(default_factory=dict)
    nonce: str = ""
    version: str = ""
    verdict: Verdict = Verdict.NONE
    nack: Nack | None = None
    acked_version: str = ""
    # The resources of the snapshot that `last_sent` agrees with; None if it has to be compared.
    synced_with: Resources | None = None

    def is_synced_with(self, resources: Resources) -> bool:
        """Whether no change of these, or of equal resources, is left to send."""
        return self.synced_with is resources or self.synced_with == resources

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        before, self.subscription = self.subscription, subscription
        if self.subscription == before:
            return
        self.held_bytes = held_bytes_of(self.subscription.names)
        added = self.subscription.names - before.names
        kept = self.subscription.select(self.last_sent)
        # The client may have deleted resources that it unsubscribed from before.
        self.last_sent = {name: found for name, found in kept.items() if name not in added}
        self.has_new_names |= self.subscription.adds_to(before)
        self.synced_with = None


def held_bytes_of(names: Collection[str]) -> int:
    """Memory for these names, estimated."""
    return sum(map(len, names)) + _NAME_OVERHEAD_BYTES * len(names)
