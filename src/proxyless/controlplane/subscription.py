"""Which resources does a client want, and what has it still to be told?

Specs: the xDS protocol, state of the world variant ("How the client specifies what resources to
return", "Grouping resources into responses").

Both are values: a `Subscription` is what the requests so far say about one type, and
`choose_answer` compares what the client wants with what it was last told.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, LISTENER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from proxyless.controlplane.resource import Resource

WILDCARD: Final = "*"

# For these a response holds all that the client subscribes to, so that what it lacks is deleted;
# and only these know the wildcard.
FULL_STATE_TYPES: Final = frozenset({LISTENER, CLUSTER})


@frozen
class Subscription:
    """What a client wants of one type."""

    names: frozenset[str] = frozenset()
    is_wildcard: bool = False
    # Whether any request has named something: before that, no names mean all of them.
    has_named: bool = False

    def after(self, type_url: str, names: Collection[str]) -> Subscription:
        """What the client wants once it has sent these names."""
        if type_url not in FULL_STATE_TYPES:
            return Subscription(frozenset(names), has_named=True)
        if not names and not self.has_named:
            # Envoy, and clients older than the "*", want everything without saying so.
            return Subscription(is_wildcard=True)
        named = frozenset(names)
        return Subscription(named - {WILDCARD}, WILDCARD in named, has_named=True)

    def adds_to(self, before: Subscription) -> bool:
        """Whether it asks for anything that the one before did not.

        A name counts even where the wildcard covered it: who asks by name waits for an answer.
        """
        return (self.is_wildcard and not before.is_wildcard) or not self.names <= before.names

    def select(self, resources: Mapping[str, Resource]) -> dict[str, Resource]:
        """Those of the resources that the client wants."""
        if self.is_wildcard:
            return dict(resources)
        if len(self.names) > len(resources):
            return {name: found for name, found in resources.items() if name in self.names}
        # In an order that is the same in every process, so that a simulated world repeats itself.
        return {name: resources[name] for name in sorted(self.names & resources.keys())}


class Reason(Enum):
    """Why a client is told something, or not."""

    ASKED = "names were added to the subscription"
    CHANGED = "subscribed resources changed"
    REMOVED = "subscribed resources are gone"
    UNCHANGED = "nothing that the client does not know"


@frozen
class Answer:
    """What to send; None is silence, which is not the same as an empty response."""

    resources: tuple[Resource, ...] | None
    reason: Reason


SILENCE: Final = Answer(None, Reason.UNCHANGED)


def choose_answer(
    type_url: str,
    *,
    wanted: Mapping[str, Resource],
    told: Mapping[str, Resource],
    names_added: bool,
) -> Answer:
    """Compare what the client wants, as it is now, with what it was last told.

    A name that was asked for anew must not be among what was told: the client may have
    forgotten it.
    """
    changed = tuple(found for name, found in wanted.items() if told.get(name) != found)
    if type_url not in FULL_STATE_TYPES:
        # That a resource is gone cannot be said for these types.
        if not changed:
            return SILENCE
        return Answer(changed, Reason.ASKED if names_added else Reason.CHANGED)
    if names_added:  # Even if none of them exists: the client learns that by the answer.
        return Answer(tuple(wanted.values()), Reason.ASKED)
    if changed:
        return Answer(tuple(wanted.values()), Reason.CHANGED)
    if len(wanted) < len(told):
        return Answer(tuple(wanted.values()), Reason.REMOVED)
    return SILENCE
