"""What does the control plane say on one ADS stream, and when?

Specs: the xDS protocol, aggregated discovery, state of the world variant ("ACK, NACK and resource
type instance version", "Eventual consistency considerations").

Theory of operation. Each type that the client asks for has a state of its own: what it subscribes
to, what it was last told, and what it thinks of that (nothing yet, ACK, NACK). Requests and
snapshots change that state; after each, `_advance` goes through the types and says what is due.
It is idempotent.

One change of the snapshot is told in an order that never leaves a route without its cluster, "make
before break": clusters and endpoints first; listeners and route configs when the client has
answered those; and which clusters are gone last of all, when the client has what its new routes
need. A client that refuses a part does not stop the rest, and what it asks for anew it gets at
once. One that uses only some of the routes never asks for the clusters of the others: its owner
calls `on_patience_over` in the end.

This core does no I/O and is driven by `service`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base import NULL_TRACE, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, type_name
from proxyless.controlplane.subscription import Subscription, choose_answer
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from proxyless.base import Trace
    from proxyless.controlplane.resource import Resource
    from proxyless.controlplane.snapshot import Resources, Snapshot

# A stream asks for four types, and a proxy for a dozen.
TYPES_MAX: Final = 32
NAMES_MAX: Final = 100_000
REQUEST_BYTES_MAX: Final = 4 * 2**20

WRAPPING_FEATURE: Final = "xds.config.resource-in-sotw"

_ORDER: Final = (CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG)
_FIRST_STAGE: Final = (CLUSTER, ENDPOINTS)
_SECOND_STAGE: Final = (LISTENER, ROUTE_CONFIG)


class RequestRefused(Exception):  # noqa: N818 - it ends a stream, and is not our error
    """The client broke a rule or a limit; the stream ends with this status."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(details)
        self.status: Final = Status(code, details)


@frozen
class Withheld:
    """What clients do not hear of for now: whole types, and resources by type and name.

    They keep what they were told before, as from a control plane that is slow.
    """

    types: frozenset[str] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()

    def plus(self, type_url: str, names: Collection[str] = ()) -> Withheld:
        """These names, too; without names, the whole type."""
        if not names:
            return Withheld(self.types | {type_url}, self.names)
        return Withheld(self.types, self.names | {(type_url, name) for name in names})

    def minus(self, type_url: str) -> Withheld:
        """Nothing of this type."""
        names = frozenset(pair for pair in self.names if pair[0] != type_url)
        return Withheld(self.types - {type_url}, names)

    def differing_types(self, other: Withheld) -> set[str]:
        """The types of which the other withholds something else."""
        return {
            *(self.types ^ other.types),
            *(type_url for type_url, _ in self.names ^ other.names),
        }

    def names_of(self, type_url: str) -> frozenset[str]:
        return frozenset(name for its_type, name in self.names if its_type == type_url)


NOTHING_WITHHELD: Final = Withheld()


@frozen
class Nack:
    """One response that a client refused, and why."""

    node_id: str
    type_url: str
    version: str
    code: int
    message: str

    def __str__(self) -> str:
        what = f"{type_name(self.type_url)} version {self.version!r}"
        return f"xds node {self.node_id!r}: {what} refused: {self.message}"


class Verdict(Enum):
    """What a client thinks of the last response of a type."""

    NONE = "nothing was sent"
    PENDING = "not answered yet"
    ACKED = "accepted"
    NACKED = "refused"


@dataclass(slots=True)
class _TypeState:
    """One type on one stream. Changed only by its stream."""

    # From the requests.
    subscription: Subscription = field(default_factory=Subscription)
    is_answer_due: bool = False
    # From the responses.
    told: dict[str, Resource] = field(default_factory=dict)
    nonce: str = ""
    version: str = ""
    verdict: Verdict = Verdict.NONE
    nack: Nack | None = None
    acked_version: str = ""
    # The resources that `told` was last compared with; None if that must be done again.
    seen: Resources | None = None

    def has_seen(self, resources: Resources) -> bool:
        """Whether the client was told of these, or of their equals in another snapshot."""
        return self.seen is resources or self.seen == resources

    def subscribe(self, type_url: str, names: Collection[str]) -> None:
        before, self.subscription = self.subscription, self.subscription.after(type_url, names)
        if self.subscription == before:
            return
        added = self.subscription.names - before.names
        kept = self.subscription.select(self.told)
        # What is asked for anew may have been forgotten, so it counts as not told.
        self.told = {name: found for name, found in kept.items() if name not in added}
        self.is_answer_due |= self.subscription.adds_to(before)
        self.seen = None


class AdsStream:
    """One stream's state. Driven by the client (requests) and the owner (snapshots)."""

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
        # Fixed at construction. Unpaced, everything is told at once, removed clusters included.
        self._is_paced = is_paced
        # How long the owner is to wait before `on_grace_over`; zero, it has not to.
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
        self._is_patience_over = False
        # Clusters that are gone and that no route of the client's needs: those that it may keep for
        # the grace, and those that had theirs.
        self._in_grace: frozenset[str] = frozenset()
        self._past_grace: frozenset[str] = frozenset()
        self._graces = 0
        # From requests and responses.
        self._types: dict[str, _TypeState] = {}
        self._responses = 0

    @property
    def node_id(self) -> str:
        return str(self.node.id)

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What the client wants, by type."""
        return {type_url: state.subscription for type_url, state in self._types.items()}

    def verdict(self, type_url: str) -> Verdict:
        """What the client thinks of the last response of this type."""
        state = self._types.get(type_url)
        return Verdict.NONE if state is None else state.verdict

    def nack(self, type_url: str) -> Nack | None:
        """Why the client refused the last response of this type; None if it did not."""
        state = self._types.get(type_url)
        return None if state is None else state.nack

    def acked_version(self, type_url: str) -> str:
        """The version that the client last accepted; empty if none."""
        state = self._types.get(type_url)
        return "" if state is None else state.acked_version

    def is_acked(self, type_url: str, version: str) -> bool:
        """Whether the client has accepted all that it is to be told of this version.

        That may be less than a response: a change that it did not subscribe to is not sent.
        """
        state, snapshot = self._types.get(type_url), self._snapshot
        if state is None or snapshot is None or state.verdict is not Verdict.ACKED:
            return False
        is_current = state.has_seen(snapshot.resources(type_url)) and not state.is_answer_due
        return is_current and snapshot.version_of(type_url) == version

    # Events

    def on_request(self, request: Proto) -> list[Proto]:
        """Take a DiscoveryRequest; give the responses that are due now.

        Raises RequestRefused, and then the stream is over.
        """
        state = self._accept(request)
        if not self.node.id and request.HasField("node"):
            self.node.CopyFrom(request.node)
        if request.response_nonce and request.response_nonce != state.nonce:
            # The client has not seen our last response. It will answer that one, too, and say
            # then what it wants.
            return []
        if request.response_nonce and state.verdict is Verdict.PENDING:
            self._judge(state, request)
        state.subscribe(request.type_url, request.resource_names)
        return self._advance()

    def on_snapshot(self, snapshot: Snapshot, withheld: Withheld = NOTHING_WITHHELD) -> list[Proto]:
        """Serve this one from now on; give the responses that are due now."""
        for type_url in self._withheld.differing_types(withheld) & self._types.keys():
            self._types[type_url].seen = None
        self._withheld = withheld
        if self._snapshot is None or not self._route_alike(snapshot, self._snapshot):
            self._is_patience_over = False
        self._snapshot = snapshot
        return self._advance()

    def on_patience_over(self) -> list[Proto]:
        """Wait no longer before saying which clusters are gone."""
        self._is_patience_over = True
        return self._advance()

    def on_grace_over(self) -> list[Proto]:
        """RPCs that were routed before the client switched have had their time."""
        self._past_grace |= self._in_grace
        self._in_grace = frozenset()
        return self._advance()

    @property
    def grace(self) -> int | None:
        """The number of the grace that is running, of which the owner is to tell the end."""
        return self._graces if self._in_grace else None

    def has_removal_pending(self) -> bool:
        """Whether the client has still to be told that some clusters are gone."""
        state, snapshot = self._types.get(CLUSTER), self._snapshot
        if state is None or snapshot is None or CLUSTER in self._withheld.types:
            return False
        return (
            not state.told.keys()
            <= self._select(CLUSTER, state, snapshot.resources(CLUSTER)).keys()
        )

    @staticmethod
    def _route_alike(one: Snapshot, other: Snapshot) -> bool:
        """Whether they route alike, to the same clusters."""
        kinds = (CLUSTER, *_SECOND_STAGE)
        return all(one.resources(kind) == other.resources(kind) for kind in kinds)

    # Requests

    def _accept(self, request: Proto) -> _TypeState:
        """The state of the request's type, or RequestRefused."""
        if not request.type_url:
            raise RequestRefused(StatusCode.INVALID_ARGUMENT, "request has no type_url")
        size_bytes = request.ByteSize()
        if size_bytes > REQUEST_BYTES_MAX:
            text = f"request has {size_bytes} bytes, wanted at most {REQUEST_BYTES_MAX}"
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        if len(request.resource_names) > NAMES_MAX:
            text = f"request names {len(request.resource_names)} resources, wanted at most "
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, f"{text}{NAMES_MAX}")
        if request.type_url not in self._types and len(self._types) == TYPES_MAX:
            text = f"stream asks for more than {TYPES_MAX} types"
            raise RequestRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        return self._types.setdefault(request.type_url, _TypeState())

    def _judge(self, state: _TypeState, request: Proto) -> None:
        """Note an ACK or a NACK: the first request with the response's nonce."""
        if request.HasField("error_detail"):
            state.verdict = Verdict.NACKED
            error = request.error_detail
            nack = Nack(self.node_id, request.type_url, state.version, error.code, error.message)
            state.nack = nack
            self._trace.emit("controlplane.nack", nack=nack)
            if self._on_nack is not None:
                self._on_nack(nack)
        else:
            state.verdict = Verdict.ACKED
            state.acked_version = state.version
            self._trace.emit(
                "controlplane.ack",
                node_id=self.node_id,
                type_url=request.type_url,
                version=state.version,
            )

    # Responses

    def _advance(self) -> list[Proto]:
        """All that is due now, in the order in which it is to be sent."""
        if self._snapshot is None:
            return []
        others = sorted(self._types.keys() - set(_ORDER))
        # Clusters twice: what follows them may have cleared the way for removing some.
        due = (self._answer(self._snapshot, url) for url in (*_ORDER, *others, CLUSTER))
        return [response for response in due if response is not None]

    def _answer(self, snapshot: Snapshot, type_url: str) -> Proto | None:
        state = self._types.get(type_url)
        if state is None or type_url in self._withheld.types:
            return None
        resources = snapshot.resources(type_url)
        if not state.is_answer_due and (state.has_seen(resources) or self._must_wait(type_url)):
            return None
        wanted = self._select(type_url, state, resources)
        kept = self._choose_kept(snapshot, state, wanted) if type_url == CLUSTER else frozenset()
        wanted |= {name: state.told[name] for name in sorted(kept)}
        answer = choose_answer(
            type_url, wanted=wanted, told=state.told, names_added=state.is_answer_due
        )
        state.told = wanted
        state.is_answer_due = False
        state.seen = None if kept else resources
        if answer.resources is None:
            return None
        return self._respond(type_url, state, snapshot.version_of(type_url), answer.resources)

    def _must_wait(self, type_url: str) -> bool:
        """Whether the client has still to answer something that this type builds on."""
        if not self._is_paced or type_url not in _SECOND_STAGE:
            return False
        return any(self.verdict(earlier) is Verdict.PENDING for earlier in _FIRST_STAGE)

    def _choose_kept(
        self, snapshot: Snapshot, state: _TypeState, wanted: Mapping[str, Resource]
    ) -> frozenset[str]:
        """Which of the clusters that are gone the client keeps for now."""
        gone = frozenset(state.told.keys() - wanted.keys())
        if not gone or not self._is_paced:
            self._in_grace = self._past_grace = frozenset()
            return frozenset()
        self._in_grace &= gone
        self._past_grace &= gone
        is_free = not self._is_second_stage_busy(snapshot) and self._has_switched(snapshot, state)
        if is_free and not self.removal_grace_s:
            return frozenset()
        if is_free and not self._in_grace and gone != self._past_grace:
            # An RPC may have been routed just before the switch, and may yet be picked or retried.
            self._in_grace = gone - self._past_grace
            self._graces += 1
        return gone - self._past_grace

    def _has_switched(self, snapshot: Snapshot, state: _TypeState) -> bool:
        """Whether the client uses the routes that it was told last."""
        if self._is_patience_over or state.subscription.is_wildcard:
            return True
        # It asks for clusters by name, so it uses its new routes only when it has theirs.
        is_answered = all(self.verdict(url) is not Verdict.PENDING for url in _FIRST_STAGE)
        return is_answered and self._needed(snapshot) <= self._told_pairs()

    def _is_second_stage_busy(self, snapshot: Snapshot) -> bool:
        """Whether listeners or route configs are still to be told, or to be answered."""
        return any(
            state.verdict is Verdict.PENDING or not state.has_seen(snapshot.resources(type_url))
            for type_url in _SECOND_STAGE
            if type_url not in self._withheld.types
            and (state := self._types.get(type_url)) is not None
        )

    def _needed(self, snapshot: Snapshot) -> set[tuple[str, str]]:
        """The clusters and endpoints that exist and that the client's routes lead to."""
        found: set[tuple[str, str]] = set()
        to_visit = [
            resource
            for type_url in _SECOND_STAGE
            if type_url in self._types
            for resource in self._types[type_url].told.values()
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

    def _told_pairs(self) -> set[tuple[str, str]]:
        return {
            (type_url, name)
            for type_url in _FIRST_STAGE
            if type_url in self._types
            for name in self._types[type_url].told
        }

    def _select(
        self, type_url: str, state: _TypeState, resources: Resources
    ) -> dict[str, Resource]:
        """What the client is to know: of withheld names, what it knows already."""
        wanted = state.subscription.select(resources)
        for name in sorted(self._withheld.names_of(type_url)):
            wanted.pop(name, None)
            if name in state.told:
                wanted[name] = state.told[name]
        return wanted

    def _respond(
        self, type_url: str, state: _TypeState, version: str, resources: Collection[Resource]
    ) -> Proto:
        self._responses += 1
        state.nonce, state.version = str(self._responses), version
        state.verdict, state.nack = Verdict.PENDING, None
        response = message_class("envoy.service.discovery.v3.DiscoveryResponse")(
            version_info=version, type_url=type_url, nonce=state.nonce
        )
        response.control_plane.identifier = self._identifier
        is_wrapped = self._can_wrap and WRAPPING_FEATURE in self.node.client_features
        for resource in resources:
            packed = response.resources.add(type_url=type_url, value=resource.value)
            if is_wrapped:
                _wrap(packed, resource.name, version)
        self._trace.emit(
            "controlplane.response",
            node_id=self.node_id,
            type_url=type_url,
            version=version,
            names=tuple(resource.name for resource in resources),
        )
        return response


def _wrap(packed: Proto, name: str, version: str) -> None:
    """Put the resource into a Resource, which tells its name and version to whoever wants them."""
    envelope = message_class("envoy.service.discovery.v3.Resource")(name=name, version=version)
    envelope.resource.CopyFrom(packed)
    packed.type_url = f"type.googleapis.com/{envelope.DESCRIPTOR.full_name}"
    packed.value = envelope.SerializeToString(deterministic=True)
