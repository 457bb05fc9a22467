"""Subscription of a client to resources of one type, and the resources of the next response.

Specs: the xDS protocol, state of the world variant ("How the client specifies what resources to
return", "Grouping resources into responses").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, LISTENER
from proxyless.xds.bootstrap.resource_names import GLOB, XDSTP, collection_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from proxyless.controlplane.resource import Resource

WILDCARD: Final = "*"

# A response of these types has all subscribed resources; a client deletes the others. Only these
# types support the wildcard.
FULL_STATE_TYPES: Final = frozenset({LISTENER, CLUSTER})


def is_glob(name: str) -> bool:
    """Whether this is the name of a glob collection: `xdstp://authority/type/path/*`."""
    return name.startswith(XDSTP) and name.partition("?")[0].endswith(GLOB)


@frozen
class Subscription:
    """The subscribed names of one type."""

    names: frozenset[str] = frozenset()
    is_wildcard: bool = False
    # Whether any request had a name. Before that, an empty list means the wildcard.
    has_named: bool = False
    # Names of glob collections (TP1), which stand for all their members. Incremental only.
    globs: frozenset[str] = frozenset()

    def after(self, type_url: str, names: Collection[str]) -> Subscription:
        """The subscription after a request with these names."""
        if type_url not in FULL_STATE_TYPES:
            return Subscription(frozenset(names), has_named=True)
        if not names and not self.has_named:
            # The legacy wildcard, which Envoy sends.
            return Subscription(is_wildcard=True)
        named = frozenset(names)
        return Subscription(named - {WILDCARD}, WILDCARD in named, has_named=True)

    def adds_to(self, before: Subscription) -> bool:
        """Whether it has names that the previous one did not have.

        A name is new even if the wildcard included it: the client waits for a response.
        """
        return (self.is_wildcard and not before.is_wildcard) or not self.names <= before.names

    def has(self, name: str) -> bool:
        """Whether a resource is subscribed by its name, or as a member of a collection."""
        return name in self.names or (bool(self.globs) and collection_of(name) in self.globs)

    def select(self, resources: Mapping[str, Resource]) -> dict[str, Resource]:
        """The subscribed resources."""
        if self.is_wildcard:
            return dict(resources)
        if self.globs:
            return {name: found for name, found in resources.items() if self.has(name)}
        if len(self.names) > len(resources):
            return {name: found for name, found in resources.items() if name in self.names}
        # Sorted, so that simulations are deterministic.
        return {name: resources[name] for name in sorted(self.names & resources.keys())}


def choose_resources(
    type_url: str,
    *,
    target: Mapping[str, Resource],
    last_sent: Mapping[str, Resource],
    names_added: bool,
) -> tuple[Resource, ...] | None:
    """The resources of the next response; None if no response is due.

    `last_sent` must not have names that were removed from the subscription and added again, because
    the client may have deleted these resources.
    """
    changed = tuple(found for name, found in target.items() if last_sent.get(name) != found)
    if type_url not in FULL_STATE_TYPES:
        # A response of these types cannot express a removal.
        return changed or None
    # A response to new names is due even if none of them exists: nothing else shows that.
    if names_added or changed or len(target) < len(last_sent):
        return tuple(target.values())
    return None
