"""The `ring_hash_experimental` policy: sends RPCs with the same hash to the same endpoint.

Specs: A42, A61 "Ring Hash", A76; requirements RH-01 to RH-12.

An endpoint is connected only when an RPC needs it, so the policy has its own aggregation of states:
`aggregate_endpoints`.

Theory of operation
    A pick looks up its hash on the ring. It waits for the owner to connect, and skips failing
    owners. Without RPCs nothing connects, with one exception: "it will make sure that it is
    attempting to connect [...] to at least one subchannel at any given time" (A42) from the first
    failure until one endpoint is READY, because a priority policy above then sends RPCs elsewhere.
    A failing child reconnects without RPCs, so the number of connecting children only grows.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final

from proxyless.base import OK, Attributes, Endpoint, Key, State, Status, ValidationErrors
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject, integer
from proxyless.lb.aggregate import StateCounts
from proxyless.lb.api import Helper, Picker, PolicyRegistry, Update
from proxyless.lb.attributes import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.pickers import FailPicker
from proxyless.lb.policies.per_endpoint import EndpointChild, PerEndpointPolicy
from proxyless.lb.policies.per_endpoint.policy import REFRESHED_AT_ONCE_MAX
from proxyless.lb.policies.pick_first.policy import EMPTY_ADDRESS_LIST
from proxyless.lb.policies.ring_hash.picker import (
    HeaderHashPicker,
    OwnerState,
    RingHashPicker,
    RingSnapshot,
)
from proxyless.lb.policies.ring_hash.ring import Member, Ring, RingSize, build_ring
from proxyless.runtime import SoonQueue

# Update attribute: "a cap for the ring size, which will also default to 4096" - A42
RING_SIZE_CAP: Final = Key[int]("ring_size_cap")

RING_SIZE_CAP_DEFAULT: Final = 4096
RING_SIZE_MIN_DEFAULT: Final = 1024
RING_SIZE_MAX_DEFAULT: Final = 4096
RING_SIZE_LIMIT: Final = 8_388_608

_RING_SIZE: Final = integer(1, RING_SIZE_LIMIT)

_RING_SIZE_DEFAULT: Final = RingSize(RING_SIZE_MIN_DEFAULT, RING_SIZE_MAX_DEFAULT)

HASH_HEADER_GUARD: Final = "GRPC_EXPERIMENTAL_RING_HASH_SET_REQUEST_HASH_KEY"

# With more endpoints, the ring is built after the update.
BUILT_AT_ONCE_MAX: Final = 5_000

# The number of failing endpoints at which the policy fails, even if others were not attempted.
FAILURES_ENOUGH: Final = 2

_HEADER_NAME: Final = re.compile(r"[0-9a-z_.\-]+").fullmatch


@frozen
class RingHashConfig:
    """Parsed config."""

    ring_size: RingSize = _RING_SIZE_DEFAULT
    # Empty: the route's hash policies have computed the hash.
    request_hash_header: str = ""


def is_header_enabled() -> bool:
    """Whether requestHashHeader is used (A76). Reads the environment at each call."""
    return read_flag(os.environ, HASH_HEADER_GUARD, default=True)


def _parse_header(fields: JsonObject) -> str:
    header = fields.text("requestHashHeader").lower()
    if header and not _HEADER_NAME(header):
        fields.add("requestHashHeader", f"is {header!r}, wanted letters, digits, '-', '_', '.'")
    if header.endswith("-bin"):
        fields.add("requestHashHeader", f"is {header!r}, wanted a header that is not binary")
    return header


def aggregate_endpoints(counts: StateCounts) -> State:
    """Return the aggregated state: the first rule of A42 that applies."""
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
    """Whether an IDLE endpoint must be connected without an RPC."""
    is_connecting = counts[State.CONNECTING] > 0
    return state in {State.CONNECTING, State.TRANSIENT_FAILURE} and not is_connecting


class RingChild(EndpointChild):
    """Endpoint on the ring."""

    is_lazy: ClassVar[bool] = True

    __slots__ = ("member",)

    def set_endpoint(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        attributes = endpoint.attributes
        # Either the key of the control plane, or the first address.
        key = attributes.get(HASH_KEY) or endpoint.addresses[0]
        self.member = Member(self, key, attributes.get(ENDPOINT_WEIGHT) or 1)

    def update_state(self, state: State, picker: Picker) -> None:
        # The connection of an unhealthy backend was lost. The child counts as failing until it is
        # READY, so no pick would connect it.
        if state is State.IDLE and self.state is State.TRANSIENT_FAILURE:
            self._list.connect_soon(self)
        super().update_state(state, picker)


def weight_of(endpoint: Endpoint) -> int:
    return endpoint.attributes.get(ENDPOINT_WEIGHT) or 1


@frozen
class RingHashSettings:
    """Settings of an update besides endpoints."""

    config: RingHashConfig = RingHashConfig()
    ring_size_cap: int = RING_SIZE_CAP_DEFAULT
    resolution_note: str = ""

    @property
    def ring_size(self) -> RingSize:
        """Sizes above the cap "will be treated as the locally configured cap" - A42."""
        size, cap = self.config.ring_size, self.ring_size_cap
        return RingSize(min(size.minimum, cap), min(size.maximum, cap))


class RingHashPolicy(PerEndpointPolicy[RingChild]):
    """Owns the children and the ring. Picks schedule connections."""

    child_type = RingChild
    trace_name: ClassVar[str] = "ring_hash.state"

    __slots__ = ("_is_ring_old", "_members", "_owner_states", "_ring", "_settings", "_to_connect")

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update; the members from the last one with endpoints.
        self._settings = RingHashSettings()
        self._members: Sequence[Member[RingChild]] = ()
        # The ring of the members, or of those of the update before; None without members.
        self._ring: Ring[RingChild] | None = None
        self._is_ring_old = False
        # Last reports of the children that are not IDLE.
        self._owner_states: dict[RingChild, OwnerState] = {}
        self._to_connect = SoonQueue[RingChild](helper.context.clock, self._connect_children)

    def _apply(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, RingHashConfig), "the factory parsed the config"
        cap = update.attributes.get(RING_SIZE_CAP) or RING_SIZE_CAP_DEFAULT
        before, self._resolution_note = self._settings, update.resolution_note
        self._settings = RingHashSettings(config, cap, update.resolution_note)
        if isinstance(update.endpoints, Status):
            # A new config is used even with a resolver error.
            if not self._members or self._settings != before:
                self._on_update(update.endpoints)
            return update.endpoints
        self._update_endpoints(update.endpoints, update.attributes)
        result = OK if update.endpoints else self._unavailable(EMPTY_ADDRESS_LIST)
        self._on_update(result)
        return result

    def exit_idle(self) -> None:
        if self._state is State.IDLE:
            self._connect_any()

    def close(self) -> None:
        self._to_connect.cancel()
        super().close()

    def _endpoint_note(self, child: RingChild) -> str:
        return f"weight {child.member.weight}"

    def _update_endpoints(self, endpoints: Sequence[Endpoint], attributes: Attributes) -> None:
        with self._hold:
            self._endpoints.update(endpoints, attributes)
        states = self._owner_states
        self._owner_states = {child: states[child] for child in states if not child.is_closed}
        listed = self._endpoints.listed
        if len(self._endpoints.children) < len(listed):
            self._members = merge_members(listed, endpoints)
        else:
            self._members = tuple(map(attrgetter("member"), listed))

    def _on_update(self, error: Status) -> None:
        """Report for the current members and settings; without members, fail with the error."""
        self._is_ring_old = bool(self._members)
        if len(self._members) > BUILT_AT_ONCE_MAX:
            # In a turn of its own.
            self._refresh_after(0)
        elif self._members:
            self._refresh()
        else:
            self._ring = None
            self._report(State.TRANSIENT_FAILURE, FailPicker(error))

    def _on_report(self, child: RingChild, before: State) -> None:
        if child.state is State.IDLE:
            self._owner_states.pop(child, None)
        else:
            self._owner_states[child] = OwnerState(child.state, child.picker)
        if self._hold.active:
            return
        if len(self._owner_states) > REFRESHED_AT_ONCE_MAX:
            # A picker copies all states: one for each report would be quadratic.
            self._refresh_after(0)
        else:
            self._refresh()

    def _connect_soon(self, child: RingChild) -> None:
        """Connect the child after the current call. Called by pickers, too."""
        if not child.is_closed:  # An old picker may hold a closed child.
            self._to_connect.add(child)

    def _connect_children(self, children: list[RingChild]) -> None:
        children = [child for child in children if not child.is_closed]
        if children:
            with self._hold:
                for child in children:
                    self._endpoints.connect(child)
            self._refresh()

    def _connect_any(self) -> None:
        """Connect a random IDLE child, unless a connection is already scheduled."""
        if self._ring is None or not all(child.is_closed for child in self._to_connect):
            return
        members = self._ring.members
        start = self._helper.context.random.randrange(len(members))
        for index in chain(range(start, len(members)), range(start)):
            child = members[index].owner
            if child.state is State.IDLE:
                self._connect_soon(child)
                return

    def _refresh(self) -> None:
        """Report, after every update and every report of a child; of many, once per turn.

        "Implementations must generate a new picker every time a subchannel's state changes." - A42
        """
        self._refresh_timer.cancel()
        if self._is_ring_old:
            self._is_ring_old = False
            self._ring = build_ring(self._members, self._settings.ring_size, self._ring)
        counts = self._endpoints.counts
        state = aggregate_endpoints(counts)
        self._report(state, self._make_picker())
        if needs_attempt(state, counts):
            self._connect_any()

    def _make_picker(self) -> Picker:
        assert self._ring is not None, "there are children only with a ring"
        counts, status = self._endpoints.counts, OK
        if aggregate_endpoints(counts) is State.TRANSIENT_FAILURE:
            error = self._endpoints.find_last_error()
            status = self._unavailable(f"no reachable endpoints; last failure: {error}")
        snapshot = RingSnapshot(
            self._ring,
            dict(self._owner_states),
            has_connecting=counts[State.CONNECTING] > 0,
            is_all_failing=counts[State.TRANSIENT_FAILURE] == len(self._endpoints.children),
            connect=self._connect_soon,
            status=status,
        )
        header = self._settings.config.request_hash_header
        if not header:
            return RingHashPicker(snapshot)
        return HeaderHashPicker(snapshot, header, self._helper.context.random.getrandbits)


def merge_members(
    listed: Sequence[RingChild], endpoints: Sequence[Endpoint]
) -> list[Member[RingChild]]:
    """Return one member per child, with the sum of the weights of its duplicates."""
    weights: dict[RingChild, int] = {}
    for child, endpoint in zip(listed, endpoints, strict=True):
        weights[child] = weights.get(child, 0) + weight_of(endpoint)
    return [
        child.member if child.member.weight == weight else replace(child.member, weight=weight)
        for child, weight in weights.items()
    ]


class RingHashFactory:
    """Factory of ring_hash_experimental."""

    name: Final = "ring_hash_experimental"
    create = RingHashPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RingHashConfig:
        fields = JsonObject(json, errors)
        low = fields.read_or("minRingSize", _RING_SIZE, RING_SIZE_MIN_DEFAULT)
        high = fields.read_or("maxRingSize", _RING_SIZE, RING_SIZE_MAX_DEFAULT)
        if errors.ok and low > high:
            fields.add("minRingSize", f"is {low}, wanted at most maxRingSize, which is {high}")
        header = _parse_header(fields) if is_header_enabled() else ""
        return RingHashConfig(RingSize(low, high), header)
