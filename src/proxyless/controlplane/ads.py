"""State machine of one ADS stream on the server side, without I/O.

Specs: the xDS protocol, aggregated discovery, state of the world variant ("ACK, NACK and resource
type instance version", "Eventual consistency considerations").

Each subscribed type has a state: the subscription, the resources sent last, and the client's answer
to them. Requests and snapshots change the states; then `_make_due_responses`, which is idempotent,
returns the responses that are due.

A change of the snapshot is sent in an order that never leaves a route without its cluster, "make
before break": first clusters and endpoints; when they are answered, listeners and route configs;
and the removal of clusters last, when the client has all that its new routes need. A NACK does not
stop the later responses. New names are answered at once, except for a cluster that does not exist:
that is reported after the routes, because the client may use it since an earlier stream, and may
request clusters first, as grpcio does. A client that uses only some of the routes does not
subscribe to the clusters of the others, so the removal also has a timeout, after which the owner
calls `on_removal_timeout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import NULL_TRACE, StatusCode, one_line
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.controlplane.answers import (
    NOTHING_WITHHELD,
    Nack,
    RequestRefused,
    Verdict,
    Withheld,
)
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LB_ENDPOINT, LISTENER, ROUTE_CONFIG
from proxyless.controlplane.subscription import choose_resources
from proxyless.controlplane.type_state import TypeState, held_bytes_of
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from proxyless.base import Trace
    from proxyless.controlplane.resource import Resource
    from proxyless.controlplane.snapshot import Resources, Snapshot
    from proxyless.controlplane.subscription import Subscription

# Limits of what one stream can make the server hold; docs/limits.md has the reasons. gRPC
# subscribes to four types, Envoy to a dozen.
TYPES_MAX: Final = 32
TYPE_URL_LENGTH_MAX: Final = 1_024
NAMES_MAX: Final = 100_000
# The names of all types together, with what Python needs to hold each.
SUBSCRIPTION_BYTES_MAX: Final = 32 * 2**20
NODE_BYTES_MAX: Final = 256 * 2**10
REQUEST_BYTES_MAX: Final = 4 * 2**20

WRAPPING_FEATURE: Final = "xds.config.resource-in-sotw"

# The `user_agent_name` of its nodes.
_ENVOY: Final = "envoy"

_ORDER: Final = (CLUSTER, ENDPOINTS, LB_ENDPOINT, LISTENER, ROUTE_CONFIG)
_FIRST_STAGE: Final = (CLUSTER, ENDPOINTS, LB_ENDPOINT)
_SECOND_STAGE: Final = (LISTENER, ROUTE_CONFIG)


class AdsStream:
    """State of one ADS stream. Each event method returns the responses that are due."""

    def __init__(
        self,
        *,
        is_paced: bool = True,
        removal_grace_s: float = 0.0,
        can_wrap: bool = False,
        identifier: str = "proxyless",
        on_nack: Callable[[Nack], None] | None = None,
        trace: Trace = NULL_TRACE,
    ) -> None:
        # Fixed at construction. Unpaced, all parts of a change are sent at once.
        self._is_paced = is_paced
        # The time after which the owner calls `on_grace_over`; 0: there is no grace.
        self.removal_grace_s = removal_grace_s
        self._can_wrap = can_wrap
        self._identifier = identifier
        self._on_nack = on_nack
        self._trace = trace
        # From the first request.
        self.node: Proto = message_class("envoy.config.core.v3.Node")()
        # From the last snapshot.
        self._snapshot: Snapshot | None = None
        self._withheld = NOTHING_WITHHELD
        self._has_removal_timed_out = False
        # Whether clusters are not sent, because some of an earlier stream do not exist any more.
        self._waits_for_routes = False
        # Removed clusters that the client's routes do not use: those in their grace, and those
        # whose grace is over.
        self._in_grace: frozenset[str] = frozenset()
        self._past_grace: frozenset[str] = frozenset()
        self._graces = 0
        # From requests and responses.
        self._types: dict[str, TypeState] = {}
        self._responses = 0

    @property
    def node_id(self) -> str:
        return str(self.node.id)

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By type."""
        return {type_url: state.subscription for type_url, state in self._types.items()}

    def verdict(self, type_url: str) -> Verdict:
        """The client's answer to the last response of this type."""
        state = self._types.get(type_url)
        return Verdict.NONE if state is None else state.verdict

    def nack(self, type_url: str) -> Nack | None:
        """The NACK of the last response of this type, if any."""
        state = self._types.get(type_url)
        return None if state is None else state.nack

    def acked_version(self, type_url: str) -> str:
        """The version that the client accepted last; empty if none."""
        state = self._types.get(type_url)
        return "" if state is None else state.acked_version

    def is_acked(self, type_url: str, version: str) -> bool:
        """Whether the client has accepted all subscribed resources of this version.

        A version that changes no subscribed resource is accepted without a response.
        """
        state, snapshot = self._types.get(type_url), self._snapshot
        if state is None or snapshot is None or state.verdict is not Verdict.ACKED:
            return False
        is_synced = state.is_synced_with(snapshot.resources(type_url)) and not state.has_new_names
        return is_synced and snapshot.version_of(type_url) == version

    # Events

    def on_request(self, request: Proto) -> list[Proto]:
        """Process a DiscoveryRequest. RequestRefused ends the stream."""
        state = self._find_state(request, request.resource_names)
        if request.response_nonce and request.response_nonce != state.nonce:
            # The client sent this before it received the last response, which it will answer with
            # its current subscription.
            return []
        if request.response_nonce and state.verdict is Verdict.PENDING:
            self._record_verdict(state, request)
        state.subscribe(state.subscription.after(request.type_url, request.resource_names))
        return self._make_due_responses()

    def on_snapshot(self, snapshot: Snapshot, withheld: Withheld = NOTHING_WITHHELD) -> list[Proto]:
        """Replace the snapshot and the withheld resources."""
        for type_url in self._withheld.differing_types(withheld) & self._types.keys():
            self._types[type_url].synced_with = None
        self._withheld = withheld
        if self._snapshot is None or not _has_equal_routes(snapshot, self._snapshot):
            self._has_removal_timed_out = False
        self._snapshot = snapshot
        return self._make_due_responses()

    def on_removal_timeout(self) -> list[Proto]:
        """Remove clusters even if the client has not subscribed to all new ones."""
        self._has_removal_timed_out = True
        return self._make_due_responses()

    def on_grace_over(self) -> list[Proto]:
        """End the grace for RPCs that were routed before the client used its new routes."""
        self._past_grace |= self._in_grace
        self._in_grace = frozenset()
        return self._make_due_responses()

    @property
    def grace(self) -> int | None:
        """The number of the current grace, after which the owner calls `on_grace_over`."""
        return self._graces if self._in_grace else None

    def has_removal_pending(self) -> bool:
        """Whether the removal of some clusters is not sent yet."""
        state, snapshot = self._types.get(CLUSTER), self._snapshot
        if state is None or snapshot is None or CLUSTER in self._withheld.types:
            return False
        target = self._select(CLUSTER, state, snapshot.resources(CLUSTER))
        return self._waits_for_routes or not state.last_sent.keys() <= target.keys()

    # Requests

    def _find_state(self, request: Proto, names: Collection[str]) -> TypeState:
        """The state of the request's type, which has these names after it; or RequestRefused."""
        if not request.type_url:
            raise RequestRefused(StatusCode.INVALID_ARGUMENT, "request has no type_url")
        size_bytes = request.ByteSize()
        if size_bytes > REQUEST_BYTES_MAX:
            text = f"request has {size_bytes} bytes, wanted at most {REQUEST_BYTES_MAX}"
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        if len(names) > NAMES_MAX:
            text = f"request names {len(names)} resources, wanted at most "
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, f"{text}{NAMES_MAX}")
        if request.type_url not in self._types:
            self._check_new_type(request.type_url)
        others = (state for url, state in self._types.items() if url != request.type_url)
        held_bytes = held_bytes_of(names) + sum(each.held_bytes for each in others)
        if held_bytes > SUBSCRIPTION_BYTES_MAX:
            text = f"stream subscribes to {held_bytes} bytes of names, wanted at most "
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, f"{text}{SUBSCRIPTION_BYTES_MAX}")
        if not self.node.id and request.HasField("node"):
            self._set_node(request.node)
        return self._types.setdefault(request.type_url, TypeState())

    def _check_new_type(self, type_url: str) -> None:
        if len(self._types) == TYPES_MAX:
            text = f"stream subscribes to more than {TYPES_MAX} types"
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        if len(type_url) > TYPE_URL_LENGTH_MAX:
            text = f"type_url has {len(type_url)} characters, wanted at most {TYPE_URL_LENGTH_MAX}"
            raise RequestRefused(StatusCode.INVALID_ARGUMENT, text)

    def _set_node(self, node: Proto) -> None:
        size_bytes = node.ByteSize()
        if size_bytes > NODE_BYTES_MAX:
            text = f"node has {size_bytes} bytes, wanted at most {NODE_BYTES_MAX}"
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        self.node.CopyFrom(node)

    def _record_verdict(self, state: TypeState, request: Proto) -> None:
        """Record an ACK or a NACK, which is the first request with the response's nonce."""
        if request.HasField("error_detail"):
            state.verdict = Verdict.NACKED
            error = request.error_detail
            nack = Nack(
                one_line(self.node_id, NAME_LENGTH_MAX),
                request.type_url,
                state.version,
                error.code,
                one_line(error.message),
            )
            state.nack = nack
            self._trace.emit("controlplane.nack", nack=nack)
            if self._on_nack is not None:
                self._on_nack(nack)
        else:
            state.verdict = Verdict.ACKED
            state.acked_version = state.version
            self._trace.emit(
                "controlplane.ack",
                node_id=one_line(self.node_id, NAME_LENGTH_MAX),
                type_url=request.type_url,
                version=state.version,
            )

    # Responses

    def _make_due_responses(self) -> list[Proto]:
        """The responses that are due, in the order to send them."""
        if self._snapshot is None:
            return []
        others = sorted(self._types.keys() - set(_ORDER))
        # Clusters are last again, because the types after them may have made a removal due.
        due = (self._respond(self._snapshot, url) for url in (*_ORDER, *others, CLUSTER))
        return [response for response in due if response is not None]

    def _respond(self, snapshot: Snapshot, type_url: str) -> Proto | None:
        state = self._types.get(type_url)
        if state is None or type_url in self._withheld.types:
            return None
        resources = snapshot.resources(type_url)
        is_synced = state.is_synced_with(resources)
        if not state.has_new_names and (is_synced or self._must_wait(type_url)):
            return None
        target = self._select(type_url, state, resources)
        if type_url == CLUSTER:
            self._waits_for_routes = self._may_remove_early(snapshot, state, target)
            if self._waits_for_routes:
                return None
        kept = self._choose_kept(snapshot, state, target) if type_url == CLUSTER else frozenset()
        target |= {name: state.last_sent[name] for name in sorted(kept)}
        response = self._make_update(type_url, state, snapshot.version_of(type_url), target)
        if type_url == CLUSTER and self.node.user_agent_name == _ENVOY:
            self._forget_endpoints(state.last_sent, target)
        state.last_sent = target
        state.has_new_names = False
        state.synced_with = None if kept else resources
        return response

    def _forget_endpoints(
        self, before: Mapping[str, Resource], target: Mapping[str, Resource]
    ) -> None:
        """Make the endpoints of changed clusters due again.

        Envoy uses a changed cluster when it has received its endpoints, even if they are the same
        as before; without them, it waits for 15 s.
        """
        endpoints = self._types.get(ENDPOINTS)
        if endpoints is None:
            return
        for name, cluster in target.items():
            if name in before and before[name] != cluster:
                for reference in cluster.references:
                    if reference.type_url == ENDPOINTS:
                        endpoints.last_sent.pop(reference.name, None)
                        endpoints.synced_with = None

    def _make_update(
        self, type_url: str, state: TypeState, version: str, target: Mapping[str, Resource]
    ) -> Proto | None:
        """The response after which the client has the target; None if none is due."""
        chosen = choose_resources(
            type_url, target=target, last_sent=state.last_sent, names_added=state.has_new_names
        )
        return None if chosen is None else self._make_response(type_url, state, version, chosen)

    def _must_wait(self, type_url: str) -> bool:
        """Whether the client has not answered a response of the previous stage."""
        if not self._is_paced or type_url not in _SECOND_STAGE:
            return False
        return any(self.verdict(earlier) is Verdict.PENDING for earlier in _FIRST_STAGE)

    def _may_remove_early(
        self, snapshot: Snapshot, state: TypeState, target: Mapping[str, Resource]
    ) -> bool:
        """Whether the client may lose clusters before it has the routes that do not need them.

        It may use them since an earlier stream, and a response without them removes them.
        """
        is_any_unknown = not state.subscription.names <= target.keys() | state.last_sent.keys()
        if not is_any_unknown or not self._is_paced or self._has_removal_timed_out:
            return False
        # All names of an earlier stream are in the first request of the next one.
        may_have_others = not state.nonce and not self._has_all_routes(snapshot)
        return may_have_others or not self._is_second_stage_sent(snapshot)

    def _has_all_routes(self, snapshot: Snapshot) -> bool:
        """Whether the client has subscribed to listeners and to their route configs."""
        if self._withheld.types.intersection(_SECOND_STAGE):
            return True
        listeners, routes = self._types.get(LISTENER), self._types.get(ROUTE_CONFIG)
        if listeners is None:
            return not snapshot.resources(LISTENER)
        sent = routes.last_sent if routes is not None else {}
        return all(
            reference.name in sent or snapshot.get(ROUTE_CONFIG, reference.name) is None
            for listener in listeners.last_sent.values()
            for reference in listener.references
            if reference.type_url == ROUTE_CONFIG
        )

    def _choose_kept(
        self, snapshot: Snapshot, state: TypeState, target: Mapping[str, Resource]
    ) -> frozenset[str]:
        """The removed clusters whose removal is not sent yet."""
        removed = frozenset(state.last_sent.keys() - target.keys())
        if not removed or not self._is_paced:
            self._in_grace = self._past_grace = frozenset()
            return frozenset()
        self._in_grace &= removed
        self._past_grace &= removed
        is_unused = not self._is_second_stage_busy(snapshot) and self._uses_last_sent_routes(
            snapshot, state
        )
        if is_unused and not self.removal_grace_s:
            return frozenset()
        if is_unused and not self._in_grace and removed != self._past_grace:
            # RPCs that were routed by the old routes may not be picked yet, or may be retried.
            self._in_grace = removed - self._past_grace
            self._graces += 1
        return removed - self._past_grace

    def _uses_last_sent_routes(self, snapshot: Snapshot, state: TypeState) -> bool:
        if self._has_removal_timed_out or state.subscription.is_wildcard:
            return True
        # A client with named subscriptions uses new routes only when it has all their clusters.
        is_answered = all(self.verdict(url) is not Verdict.PENDING for url in _FIRST_STAGE)
        return is_answered and self._needed_by_routes(snapshot) <= self._sent_pairs()

    def _is_second_stage_busy(self, snapshot: Snapshot) -> bool:
        """Whether listeners or route configs are not sent yet, or not answered."""
        is_pending = any(self.verdict(url) is Verdict.PENDING for url in self._second_stage)
        return is_pending or not self._is_second_stage_sent(snapshot)

    def _is_second_stage_sent(self, snapshot: Snapshot) -> bool:
        return all(
            self._types[url].is_synced_with(snapshot.resources(url)) for url in self._second_stage
        )

    @property
    def _second_stage(self) -> list[str]:
        """The subscribed types of the second stage that are not withheld."""
        return [
            url for url in _SECOND_STAGE if url in self._types and url not in self._withheld.types
        ]

    def _needed_by_routes(self, snapshot: Snapshot) -> set[tuple[str, str]]:
        """The existing clusters and endpoints that the client's routes refer to."""
        found: set[tuple[str, str]] = set()
        to_visit = [
            resource
            for type_url in _SECOND_STAGE
            if type_url in self._types
            for resource in self._types[type_url].last_sent.values()
        ]
        while to_visit:
            for reference in to_visit.pop().references:
                key = (reference.type_url, reference.name)
                resource = snapshot.get(*key)
                if resource is None or key in found or reference.type_url in _SECOND_STAGE:
                    continue
                found.add(key)
                to_visit.append(resource)
        return found

    def _sent_pairs(self) -> set[tuple[str, str]]:
        return {
            (type_url, name)
            for type_url in _FIRST_STAGE
            if type_url in self._types
            for name in self._types[type_url].last_sent
        }

    def _select(self, type_url: str, state: TypeState, resources: Resources) -> dict[str, Resource]:
        """The subscribed resources; of withheld ones, the version that was sent last."""
        target = state.subscription.select(resources)
        for name in sorted(self._withheld.names_of(type_url)):
            target.pop(name, None)
            if name in state.last_sent:
                target[name] = state.last_sent[name]
        return target

    def _make_response(
        self, type_url: str, state: TypeState, version: str, resources: Collection[Resource]
    ) -> Proto:
        self._start_response(state, version)
        response = message_class("envoy.service.discovery.v3.DiscoveryResponse")(
            version_info=version, type_url=type_url, nonce=state.nonce
        )
        response.control_plane.identifier = self._identifier
        is_wrapped = self._can_wrap and WRAPPING_FEATURE in self.node.client_features
        for resource in resources:
            packed = response.resources.add(type_url=type_url, value=resource.value)
            if is_wrapped:
                _wrap(packed, resource.name, version)
        self._trace_response(type_url, version, resources)
        return response

    def _start_response(self, state: TypeState, version: str) -> None:
        self._responses += 1
        state.nonce, state.version = str(self._responses), version
        state.verdict, state.nack = Verdict.PENDING, None

    def _trace_response(self, type_url: str, version: str, resources: Collection[Resource]) -> None:
        names = tuple(resource.name for resource in resources)
        self._trace.emit(
            "controlplane.response",
            node_id=self.node_id,
            type_url=type_url,
            version=version,
            names=names,
        )


def _has_equal_routes(one: Snapshot, other: Snapshot) -> bool:
    """Whether listeners, route configs and clusters are equal."""
    kinds = (CLUSTER, *_SECOND_STAGE)
    return all(one.resources(kind) == other.resources(kind) for kind in kinds)


def _wrap(packed: Proto, name: str, version: str) -> None:
    """Put the resource into a Resource message, with its name and version."""
    envelope = message_class("envoy.service.discovery.v3.Resource")(name=name, version=version)
    envelope.resource.CopyFrom(packed)
    packed.type_url = f"type.googleapis.com/{envelope.DESCRIPTOR.full_name}"
    packed.value = envelope.SerializeToString(deterministic=True)
