"""State machine of one incremental ADS stream on the server side, without I/O.

Specs: the xDS protocol, aggregated discovery, incremental variant ("delta").

The order of a change, pacing, and the removal of clusters are those of `AdsStream`. A response has
the resources that are new or changed, and the names of those that do not exist. The version of a
resource is a hash of its bytes, so that a client that reconnects, even to another replica, gets
only what differs from the versions that it has.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.ads import AdsStream
from proxyless.controlplane.answers import Verdict
from proxyless.controlplane.subscription import (
    FULL_STATE_TYPES,
    WILDCARD,
    Subscription,
    is_glob,
)
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap.resource_names import collection_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from proxyless.controlplane.resource import Resource
    from proxyless.controlplane.type_state import TypeState

_VERSION_BYTES: Final = 8


def version_of(resource: Resource) -> str:
    """The version of a resource: equal for equal bytes."""
    return blake2b(resource.value, digest_size=_VERSION_BYTES).hexdigest()


def change_subscription(
    before: Subscription, type_url: str, added: Collection[str], removed: Collection[str]
) -> Subscription:
    """The subscription after a request with these changes."""
    is_first = not before.has_named and not before.is_wildcard
    if is_first and not added:
        # The legacy wildcard, which Envoy sends.
        return Subscription(is_wildcard=type_url in FULL_STATE_TYPES)
    names = before.names.union(added).difference(removed)
    is_wildcard = (before.is_wildcard or WILDCARD in added) and WILDCARD not in removed
    names -= {WILDCARD}
    globs = frozenset(filter(is_glob, names))
    return Subscription(names, is_wildcard, has_named=True, globs=globs)


def _choose_gone(
    subscription: Subscription,
    new_names: Collection[str],
    sent: Collection[str],
    target: Mapping[str, Resource],
) -> set[str]:
    """Names that do not exist: members that the client had, and new names without a resource.

    A collection without members does not exist. A member is removed even
    if something refers to it: nothing else shows a client that it is gone.
    """
    existing = set(map(collection_of, target))
    return {
        *(name for name in sent if collection_of(name) in subscription.globs),
        *(name for name in new_names if name not in existing),
    }


class DeltaAdsStream(AdsStream):
    """State of one incremental ADS stream."""

    def on_request(self, request: Proto) -> list[Proto]:
        """Process a DeltaDiscoveryRequest. RequestRefused ends the stream."""
        type_url, added = request.type_url, request.resource_names_subscribe
        known = self._types.get(type_url)
        before = Subscription() if known is None else known.subscription
        after = change_subscription(before, type_url, added, request.resource_names_unsubscribe)
        state = self._find_state(request, after.names)
        if state.verdict is Verdict.PENDING and request.response_nonce == state.nonce:
            self._record_verdict(state, request)
        if known is None:
            state.initial_versions = dict(request.initial_resource_versions)
        state.subscribe(after)
        if named := after.names.intersection(added):
            # Sent even if the client has the current version: it may have dropped the resource.
            for name in named:
                state.last_sent.pop(name, None)
            if named & after.globs:
                sent = state.last_sent.items()
                state.last_sent = {
                    name: found for name, found in sent if collection_of(name) not in named
                }
            state.new_names |= named
            state.has_new_names, state.synced_with = True, None
        return self._make_due_responses()

    def _make_update(
        self, type_url: str, state: TypeState, version: str, target: Mapping[str, Resource]
    ) -> Proto | None:
        new_names, state.new_names = state.new_names & state.subscription.names, set()
        initial, state.initial_versions = state.initial_versions, {}
        held = {
            name
            for name, its_version in initial.items()
            if name in target and version_of(target[name]) == its_version
        }
        had = state.last_sent
        changed = [
            found for name, found in target.items() if name not in held and had.get(name) != found
        ]
        # Endpoints and route configs are removed by the removal of what refers to them, as in state
        # of the world: the client may still use them.
        is_full_state = type_url in FULL_STATE_TYPES
        in_use = {name for name in initial if initial[name]}
        gone = new_names | had.keys() if is_full_state else new_names - in_use
        if not is_full_state and not gone <= target.keys():
            gone -= self._find_outdated_references(type_url)
        if state.subscription.globs:
            gone = _choose_gone(state.subscription, new_names, initial.keys() | had.keys(), target)
        removed = sorted(gone - target.keys())
        # A client that has all it subscribes to gets an empty response, as a sign of life.
        if not changed and not removed and not (held and new_names):
            return None
        return self._make_delta(type_url, state, version, changed, removed)

    def _find_outdated_references(self, type_url: str) -> set[str]:
        """Names that resources refer to which the client has, and whose change is not sent yet.

        That such a name does not exist is no error of the mesh: what needs it is about to change.
        """
        snapshot = self._snapshot
        assert snapshot is not None, "responses are made for a snapshot"
        return {
            reference.name
            for url, state in self._types.items()
            for name, resource in state.last_sent.items()
            for reference in resource.references
            if reference.type_url == type_url and snapshot.get(url, name) != resource
        }

    def _make_delta(
        self,
        type_url: str,
        state: TypeState,
        version: str,
        changed: Collection[Resource],
        removed: Collection[str],
    ) -> Proto:
        self._start_response(state, version)
        response = message_class("envoy.service.discovery.v3.DeltaDiscoveryResponse")(
            system_version_info=version,
            type_url=type_url,
            nonce=state.nonce,
            removed_resources=removed,
        )
        response.control_plane.identifier = self._identifier
        for resource in changed:
            packed = response.resources.add(name=resource.name, version=version_of(resource))
            packed.resource.type_url = type_url
            packed.resource.value = resource.value
        self._trace_response(type_url, version, changed)
        return response
