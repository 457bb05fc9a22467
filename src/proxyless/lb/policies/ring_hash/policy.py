"""RPCs with the same hash go to the same endpoint, as long as it can be reached.

Specs: A42, A61 "Ring Hash", A76; requirements RH-01 to RH-12.

Where hashes belong is decided in `ring`, and where an RPC goes in `ring_picker`; the children are
the business of `endpoint_list`. An endpoint is connected only when an RPC needs it, so this policy
has its own rule for what all of them are together: `aggregate_endpoints`.

Theory of operation
    A pick looks up its hash. It waits for the owner to connect, and goes on along the ring from
    owners that fail. Without RPCs nothing connects, with one exception: "it will make sure that it
    is attempting to connect [...] to at least one subchannel at any given time" (A42) from the
    first failure until one is READY, because a priority policy above sends RPCs elsewhere by then.
    Each child that fails goes on trying by itself, so the number of those that try only grows.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final

from proxyless.base import (
    OK,
    Attributes,
    Endpoint,
    Key,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject, integer
from proxyless.lb.aggregate import StateCounts
from proxyless.lb.api import Helper, Picker, Policy, PolicyRegistry, Update
from proxyless.lb.attributes import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.pickers import FailPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList
from proxyless.lb.policies.pick_first.policy import EMPTY_ADDRESS_LIST
from proxyless.lb.policies.ring_hash.picker import HeaderPicker, RingPicker, Snapshot, View
from proxyless.lb.policies.ring_hash.ring import Member, Ring, RingSize, build_ring
from proxyless.lb.reentrancy import Hold, SoonQueue
from proxyless.lb.view import LbNode

# Attribute of an update: "a cap for the ring size, which will also default to 4096" - A42
RING_SIZE_CAP: Final = Key[int]("ring_size_cap")

RING_SIZE_CAP_DEFAULT: Final = 4096
RING_SIZE_MIN_DEFAULT: Final = 1024
RING_SIZE_MAX_DEFAULT: Final = 4096
RING_SIZE_LIMIT: Final = 8_388_608

_RING_SIZE: Final = integer(1, RING_SIZE_LIMIT)

_RING_SIZE_DEFAULT: Final = RingSize(RING_SIZE_MIN_DEFAULT, RING_SIZE_MAX_DEFAULT)

HASH_HEADER_GUARD: Final = "GRPC_EXPERIMENTAL_RING_HASH_SET_REQUEST_HASH_KEY"

# So many endpoints have to fail until all count as failing, though others were not tried.
FAILURES_ENOUGH: Final = 2

_HEADER_NAME: Final = re.compile(r"[0-9a-z_.\-]+").fullmatch


# ---------------------------------------------------------------------------------------------
# Config


@frozen
class RingHashConfig:
    """How large the ring is, and which header is hashed; without one, the route has done that."""

    ring_size: RingSize = _RING_SIZE_DEFAULT
    request_hash_header: str = ""


def is_header_enabled() -> bool:
    """Whether requestHashHeader counts (A76), by the environment as it is now."""
    return read_flag(os.environ, HASH_HEADER_GUARD, default=True)


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> RingHashConfig:
    fields = JsonObject(json, errors)
    minimum = fields.read_or("minRingSize", _RING_SIZE, RING_SIZE_MIN_DEFAULT)
    maximum = fields.read_or("maxRingSize", _RING_SIZE, RING_SIZE_MAX_DEFAULT)
    if errors.ok and minimum > maximum:
        fields.add("minRingSize", f"is {minimum}, wanted at most maxRingSize, which is {maximum}")
    size = RingSize(minimum, maximum)
    return RingHashConfig(size, _parse_header(fields) if is_header_enabled() else "")


def _parse_header(fields: JsonObject) -> str:
    header = fields.text("requestHashHeader").lower()
    if header and not _HEADER_NAME(header):
        fields.add("requestHashHeader", f"is {header!r}, wanted letters, digits, '-', '_', '.'")
    if header.endswith("-bin"):
        fields.add("requestHashHeader", f"is {header!r}, wanted a header that is not binary")
    return header


# ---------------------------------------------------------------------------------------------
# Decision


def aggregate_endpoints(counts: StateCounts) -> State:
    """The state to show for all endpoints together: the first rule of A42 that applies."""
    failing, idle = counts[State.TRANSIENT_FAILURE], counts[State.IDLE]
    if counts[State.READY]:
        return State.READY
    if failing >= FAILURES_ENOUGH:
        return State.TRANSIENT_FAILURE
    if counts[State.CONNECTING]:
        return State.CONNECTING
    # "If there is one subchannel in TRANSIENT_FAILURE and there is more than one subchannel" - A42
    if failing and idle:
        return State.CONNECTING
    return State.IDLE if idle else State.TRANSIENT_FAILURE


def needs_attempt(state: State, counts: StateCounts) -> bool:
    """Whether an endpoint is to be connected with no RPC asking for it, if there is one to be."""
    is_trying = counts[State.CONNECTING] > 0
    return state in {State.CONNECTING, State.TRANSIENT_FAILURE} and not is_trying


# ---------------------------------------------------------------------------------------------
# Children


class RingChild(EndpointChild):
    """An endpoint on the ring, connected when somebody asks for it."""

    is_lazy: ClassVar[bool] = True

    __slots__ = ("member",)

    def set_endpoint(self, endpoint: Endpoint) -> None:
        super().set_endpoint(endpoint)
        self.member = Member(self, key_of(endpoint), weight_of(endpoint))

    def update_state(self, state: State, picker: Picker) -> None:
        # It counts as failing until it is READY, so nobody would ask for it: a connection that was
        # lost while its backend was not serving.
        if state is State.IDLE and self.state is State.TRANSIENT_FAILURE:
            self._list.connect_soon(self)
        super().update_state(state, picker)


def key_of(endpoint: Endpoint) -> str:
    """What is hashed for this endpoint."""
    return endpoint.attributes.get(HASH_KEY) or str(endpoint.addresses[0])


def weight_of(endpoint: Endpoint) -> int:
    return endpoint.attributes.get(ENDPOINT_WEIGHT) or 1


# ---------------------------------------------------------------------------------------------
# Policy


@frozen
class RingHashSettings:
    """What an update says besides endpoints."""

    config: RingHashConfig = RingHashConfig()
    ring_size_cap: int = RING_SIZE_CAP_DEFAULT
    resolution_note: str = ""

    @property
    def ring_size(self) -> RingSize:
        """Sizes above the cap "will be treated as the locally configured cap" - A42."""
        wanted, cap = self.config.ring_size, self.ring_size_cap
        return RingSize(min(wanted.minimum, cap), min(wanted.maximum, cap))

    def annotate(self, text: str) -> str:
        return f"{text} ({self.resolution_note})" if self.resolution_note else text


class RingHashPolicy:
    """Owns the children and the ring. Driven by its parent, the endpoints' children, and picks."""

    __slots__ = (
        "_endpoints",
        "_helper",
        "_hold",
        "_members",
        "_ring",
        "_settings",
        "_state",
        "_views",
        "_wanted",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._endpoints = EndpointList(helper, RingChild, self._on_report)
        # From the last update; the members are those of the last one that was no error.
        self._settings = RingHashSettings()
        self._members: Sequence[Member[RingChild]] = ()
        # Made of the members, if there are any.
        self._ring: Ring[RingChild] | None = None
        # From the children's reports; whoever is not here is IDLE.
        self._views: dict[RingChild, View] = {}
        # Around calls to children.
        self._hold: Final = Hold()
        self._wanted = SoonQueue[RingChild](helper.context.clock, self._connect_wanted)
        # What was last reported.
        self._state: State | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, RingHashConfig), "the config is one of ours"
        cap = update.attributes.get(RING_SIZE_CAP) or RING_SIZE_CAP_DEFAULT
        had, self._settings = self._settings, RingHashSettings(config, cap, update.resolution_note)
        if isinstance(update.endpoints, Status):
            # The config counts even if the resolver has nothing but an error.
            if not self._members or self._settings != had:
                self._on_update(update.endpoints)
            return update.endpoints
        self._update_endpoints(update.endpoints, update.attributes)
        result = OK if update.endpoints else self._unavailable(EMPTY_ADDRESS_LIST)
        self._on_update(result)
        return result

    def exit_idle(self) -> None:
        if self._state is State.IDLE:
            self._connect_any()

    def reset_backoff(self) -> None:
        self._endpoints.reset_backoff()

    def close(self) -> None:
        self._wanted.cancel()
        self._endpoints.close()

    def describe(self) -> LbNode:
        state = "" if self._state is None else self._state.name
        children = self._endpoints.describe(lambda child: f"weight {child.member.weight}")
        detail = self._endpoints.count_ready() if children else ""
        return LbNode(state=state, detail=detail, children=children)

    # Updates.

    def _update_endpoints(self, endpoints: Sequence[Endpoint], attributes: Attributes) -> None:
        with self._hold:
            self._endpoints.update(endpoints, attributes)
        self._views = {child: view for child, view in self._views.items() if not child.is_closed}
        listed = self._endpoints.listed
        if len(self._endpoints.children) < len(listed):
            self._members = merge_members(listed, endpoints)
        else:
            self._members = tuple(map(attrgetter("member"), listed))

    def _on_update(self, error: Status) -> None:
        """Use the members and settings there are; the error is why, if there are no members."""
        if self._members:
            self._ring = build_ring(self._members, self._settings.ring_size, self._ring)
            self._reconsider()
        else:
            self._ring = None
            self._report(State.TRANSIENT_FAILURE, FailPicker(error))

    # Children.

    def _on_report(self, child: RingChild, before: State) -> None:
        if child.state is State.IDLE:
            self._views.pop(child, None)
        else:
            self._views[child] = View(child.state, child.picker)
        if not self._hold.active:
            self._reconsider()

    def _connect_soon(self, child: RingChild) -> None:
        """Tell the child to connect, after whatever is going on now. For pickers, too."""
        if not child.is_closed:  # A picker may outlive it.
            self._wanted.add(child)

    def _connect_wanted(self, wanted: list[RingChild]) -> None:
        wanted = [child for child in wanted if not child.is_closed]
        if wanted:
            with self._hold:
                for child in wanted:
                    self._endpoints.connect(child)
            self._reconsider()

    def _connect_any(self) -> None:
        """Tell any IDLE child to connect, unless one is about to. By chance, so clients spread."""
        if self._ring is None or not all(child.is_closed for child in self._wanted):
            return
        members = self._ring.members
        start = self._helper.context.random.randrange(len(members))
        for index in chain(range(start, len(members)), range(start)):
            child = members[index].owner
            if child.state is State.IDLE:
                self._connect_soon(child)
                return

    # Reports.

    def _reconsider(self) -> None:
        """Report. Runs after every report of a child that counts and after updates.

        "Implementations must generate a new picker every time a subchannel's state changes." - A42
        """
        counts = self._endpoints.counts
        state = aggregate_endpoints(counts)
        self._report(state, self._make_picker(state))
        if needs_attempt(state, counts):
            self._connect_any()

    def _make_picker(self, state: State) -> Picker:
        assert self._ring is not None, "whoever has children has a ring"
        counts, status = self._endpoints.counts, OK
        if state is State.TRANSIENT_FAILURE:
            error = self._endpoints.find_last_error()
            status = self._unavailable(f"no reachable endpoints; last failure: {error}")
        snapshot = Snapshot(
            self._ring,
            dict(self._views),
            has_connecting=counts[State.CONNECTING] > 0,
            is_all_failing=counts[State.TRANSIENT_FAILURE] == len(self._endpoints.children),
            wake=self._connect_soon,
            status=status,
        )
        header = self._settings.config.request_hash_header
        if not header:
            return RingPicker(snapshot)
        return HeaderPicker(snapshot, header, self._helper.context.random.getrandbits)

    def _unavailable(self, text: str) -> Status:
        return Status(StatusCode.UNAVAILABLE, self._settings.annotate(text))

    def _report(self, state: State, picker: Picker) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit("ring_hash.state", before=self._state, after=state, status=picker.status)
        self._state = state
        self._helper.update_state(state, picker)


def merge_members(
    listed: Sequence[RingChild], endpoints: Sequence[Endpoint]
) -> list[Member[RingChild]]:
    """One member per child, with all the weight that it is listed with."""
    weights: dict[RingChild, int] = {}
    for child, endpoint in zip(listed, endpoints, strict=True):
        weights[child] = weights.get(child, 0) + weight_of(endpoint)
    return [
        child.member if child.member.weight == weight else replace(child.member, weight=weight)
        for child, weight in weights.items()
    ]


class RingHashFactory:
    """What the registry knows of ring_hash_experimental."""

    name: Final = "ring_hash_experimental"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RingHashConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return RingHashPolicy(helper)
