"""Which hosts may sessions stay on, and who holds the subchannel to each?

Specs: A75 "Changes in xds_override_host LB Policy" (A75-29..43, A75-52..63, A75-71).

Theory of operation
    A host is one address of an endpoint. Its subchannel is held by the child, or by us if the child
    does not want it and a session needs it, or there is none. What the child holds is wrapped, so
    that a subchannel that it gives back stays as it is, connection and all, if we go on holding it.
    An address that is not listed has a host only as long as the child holds a subchannel to it.

    A subchannel that only sessions use is replaced when an update changes its attributes: at once
    if it has no connection, or if the new one shares it; otherwise when the new one is READY.

`choose_host` is the decision for one RPC. Nothing here reports, waits or reads the clock.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from proxyless.base import EMPTY_ATTRIBUTES, Address, Attributes, Key, State, Status
from proxyless.lb.api import Complete
from proxyless.lb.attributes import ENDPOINT_WEIGHT, HASH_KEY, HOLDER, is_other_way_only
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.hierarchy import without_path
from proxyless.xds.config.attributes import HEALTH_STATUS, LOCALITY_WEIGHT
from proxyless.xds.resources import HealthStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from proxyless.base import Endpoint
    from proxyless.lb.api import Cancel, LoadListener, StateListener, Subchannel

# "with a minimum of 5 seconds between runs to minimize overhead" - A75
SWEEP_INTERVAL_MIN_S: Final = 5.0

_NEVER: Final = -math.inf

# Attributes of an endpoint that its subchannel does not depend on.
_IRRELEVANT: Final[tuple[Key[Any], ...]] = (
    HEALTH_STATUS,
    LOCALITY_WEIGHT,
    ENDPOINT_WEIGHT,
    HASH_KEY,
)

# ---------------------------------------------------------------------------------------------
# Decision: one RPC


class HostView(Protocol):
    """All that the choice may know about one host."""

    @property
    def health(self) -> HealthStatus: ...

    @property
    def state(self) -> State | None:
        """Of its subchannel; None if there is none."""
        ...


class Verdict(Enum):
    """What is done for an RPC of a session, and why."""

    USE = "the session's host is READY"
    CONNECT = "the session's host is IDLE and is asked to connect"
    WAIT = "the session's host is CONNECTING"
    CREATE = "the session's host has no subchannel and gets one"
    DELEGATE = "no host of the session is usable: the child picks"


H = TypeVar("H", bound=HostView)


def choose_host(
    cookie_addresses: Iterable[str], hosts: Mapping[str, H], usable: Collection[HealthStatus]
) -> tuple[Verdict, H | None]:
    """What to do, and with which host; with none if there is nothing to be done to one.

    A READY host is worth more than an IDLE one, and so on down the verdicts; among equals the first
    one of the cookie.
    """
    idle: H | None = None
    without_subchannel: H | None = None
    is_connecting = False
    for address in cookie_addresses:
        host = hosts.get(address)
        if host is None or host.health not in usable:
            continue
        match host.state:
            case State.READY:
                return Verdict.USE, host
            case State.IDLE:
                idle = idle or host
            case State.CONNECTING:
                is_connecting = True
            case None:
                without_subchannel = without_subchannel or host
            case _:
                # It fails, and is not worth waiting for (A75-62).
                continue
    if idle is not None:
        return Verdict.CONNECT, idle
    if is_connecting:
        return Verdict.WAIT, None
    if without_subchannel is not None:
        return Verdict.CREATE, without_subchannel
    return Verdict.DELEGATE, None


# ---------------------------------------------------------------------------------------------
# Hosts and their subchannels


def health_of(endpoint: Endpoint) -> HealthStatus:
    return endpoint.attributes.get(HEALTH_STATUS) or HealthStatus.UNKNOWN


class Host:
    """One address. Driven by the roster and, while it is listed, by the picks of sessions."""

    __slots__ = (
        "address",
        "addresses",
        "endpoint",
        "health",
        "held_by_child",
        "is_awaited",
        "last_used_s",
        "owned",
        "renewed",
    )

    def __init__(self, address: Address) -> None:
        # Fixed at construction.
        self.address: Final = address
        # From the last update. Without an endpoint it is not listed.
        self.endpoint: Endpoint | None = None
        self.health = HealthStatus.UNKNOWN
        self.addresses: tuple[str, ...] = ()
        # Set by picks: when the last one of a session chose it, and whether one waits for it.
        self.last_used_s = _NEVER
        self.is_awaited = False
        # The child's subchannels, and ours: there is one only if the child has none.
        self.held_by_child: dict[HostSubchannel, None] = {}
        self.owned: HostSubchannel | None = None
        # Only beside ours, which it replaces when it is READY.
        self.renewed: HostSubchannel | None = None

    @property
    def subchannel(self) -> HostSubchannel | None:
        """The one that sessions use: of the child's the newest."""
        return next(reversed(self.held_by_child), self.owned)

    @property
    def attributes(self) -> Attributes:
        """As policies further down see them, so that the same connection is meant."""
        endpoint = self.endpoint
        return EMPTY_ATTRIBUTES if endpoint is None else without_path(endpoint.attributes)

    @property
    def state(self) -> State | None:
        subchannel = self.subchannel
        return None if subchannel is None else subchannel.state

    def list_as(self, endpoint: Endpoint) -> None:
        """Take over what the endpoint says."""
        if endpoint is self.endpoint:
            return
        self.endpoint = endpoint
        self.health = health_of(endpoint)
        others = [each for each in endpoint.addresses if each != self.address]
        self.addresses = (str(self.address), *map(str, others))

    def unlist(self) -> None:
        """It is no place for sessions any more."""
        self.endpoint = None
        self.addresses = ()
        self.last_used_s = _NEVER
        self.drop_owned()

    def drop_owned(self) -> None:
        """Release the subchannel that only sessions needed, if there is one."""
        self.drop_renewed()
        subchannel, self.owned = self.owned, None
        if subchannel is not None:
            subchannel.inner.release()

    def drop_renewed(self) -> None:
        subchannel, self.renewed = self.renewed, None
        if subchannel is not None:
            subchannel.inner.release()

    def reset_backoff(self) -> None:
        """Of the subchannels that only sessions need."""
        for subchannel in (self.owned, self.renewed):
            if subchannel is not None:
                subchannel.reset_backoff()

    def is_expired(self, now_s: float, idle_timeout_s: float) -> bool:
        """Whether no session used it for so long that none is likely to come back."""
        return self.last_used_s + idle_timeout_s <= now_s


class HostSubchannel(ForwardingSubchannel):
    """A subchannel that can pass from the child to us. Driven by the child and the one inside.

    Once the child has released it, the child hears nothing more, whoever holds it then.
    """

    __slots__ = ("_child_watches", "_roster", "attributes", "host", "override", "state")

    def __init__(
        self, inner: Subchannel, attributes: Attributes, host: Host, roster: Hosts
    ) -> None:
        super().__init__(inner)
        # Fixed at construction.
        self.attributes: Final = attributes
        self.host: Final = host
        self._roster: Final = roster
        # The result for an RPC whose session lives here.
        self.override: Final = Complete(inner)
        # From inside.
        self.state: State | None = None
        # The child's watches, that have to end with its interest.
        self._child_watches: dict[Cancel, None] = {}
        inner.watch(self._on_state)

    def watch(self, listener: StateListener) -> Cancel:
        return self._until_released(self.inner.watch(listener))

    def watch_health(self, listener: StateListener) -> Cancel:
        return self._until_released(self.inner.watch_health(listener))

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        return self._until_released(self.inner.watch_load_reports(interval_s, listener))

    def release(self) -> None:
        watches, self._child_watches = self._child_watches, {}
        for cancel in watches:
            cancel()
        self._roster.on_child_release(self)

    def _until_released(self, cancel_inner: Cancel) -> Cancel:
        self._child_watches[cancel_inner] = None

        def cancel() -> None:
            # After the release there is nothing to cancel.
            if cancel_inner in self._child_watches:
                del self._child_watches[cancel_inner]
                cancel_inner()

        return cancel

    def _on_state(self, state: State, status: Status) -> None:
        before, self.state = self.state, state
        if before is not None:
            self._roster.on_state(self, before)


def _relevant(attributes: Attributes) -> Attributes:
    """Those that a subchannel depends on, and those who wrap it."""
    attributes = without_path(attributes)
    for key in _IRRELEVANT:
        attributes = attributes.without(key)
    return attributes


class HostsOwner(Protocol):
    """What hosts tell the policy, and ask it."""

    def create_inner(self, address: Address, attributes: Attributes) -> Subchannel:
        """A new subchannel, which is not wrapped yet."""
        ...

    def keeps(self, host: Host) -> bool:
        """Whether the host's subchannel stays when the child is done with it."""
        ...

    def on_news(self, *, is_during_call: bool) -> None:
        """RPCs that wait might find something else now; whether the child is calling just now."""
        ...


class Hosts:
    """All hosts of a cluster. Driven by the policy, its child's subchannels, and theirs."""

    __slots__ = ("_hosts", "_owner", "listed")

    def __init__(self, owner: HostsOwner) -> None:
        # Fixed at construction.
        self._owner: Final = owner
        # All there are: listed, or with a subchannel of the child's.
        self._hosts: dict[Address, Host] = {}
        # By text, for picks, which see every change. "Keys are endpoint addresses" (A75-29)
        self.listed: Final[dict[str, Host]] = {}

    def __iter__(self) -> Iterator[Host]:
        return iter(self.listed.values())

    def replace(self, endpoints: Iterable[Endpoint]) -> None:
        """List these and no others. Of an address that comes twice, the first one counts."""
        wanted: dict[Address, Endpoint] = {}
        for endpoint in endpoints:
            for address in endpoint.addresses:
                wanted.setdefault(address, endpoint)
        for host in [each for each in self if each.address not in wanted]:
            self._unlist(host)
        for address, endpoint in wanted.items():
            known = self._hosts.get(address)
            if known is None or known.endpoint is not endpoint:
                self._list(self._have(address), endpoint)

    def create_for_child(self, address: Address, attributes: Attributes) -> HostSubchannel:
        """The child's subchannel to this address; from now on it is not ours (A75-43)."""
        host = self._have(address)
        subchannel = self._create(host, attributes)
        host.held_by_child[subchannel] = None
        # Not earlier: the new one may share the connection, and meanwhile it stays open.
        host.drop_owned()
        self._tell_if_awaited(host)
        return subchannel

    def own(self, host: Host) -> None:
        """Hold a new subchannel to a host that has none, for sessions."""
        assert host.subchannel is None, "a host has one subchannel at a time"
        host.owned = self._create(host, host.attributes)

    def clear(self) -> None:
        """List nothing, and let go of what only sessions needed."""
        for host in list(self):
            self._unlist(host)

    # Called by subchannels.

    def on_child_release(self, subchannel: HostSubchannel) -> None:
        """Release it in earnest, or go on holding it."""
        host = subchannel.host
        if subchannel not in host.held_by_child:
            # Released twice, and it may be ours by now.
            return
        del host.held_by_child[subchannel]
        if host.subchannel is None and self._owner.keeps(host):
            host.owned = subchannel
            self._renew(host)
            return
        subchannel.inner.release()
        self._forget_if_unused(host)
        self._tell_if_awaited(host)

    def on_state(self, subchannel: HostSubchannel, before: State) -> None:
        """Tell if RPCs of sessions may wait for this: the child need not report it."""
        host = subchannel.host
        if subchannel is host.renewed:
            self._renew(host)
        if subchannel is not host.subchannel or subchannel.state is before:
            return
        is_lost = before is State.READY and host.last_used_s != _NEVER
        if subchannel is host.owned or host.is_awaited or is_lost:
            host.is_awaited = False
            self._renew(host)
            self._owner.on_news(is_during_call=False)

    def _tell_if_awaited(self, host: Host) -> None:
        """For what happens while the child is calling."""
        if host.is_awaited:
            host.is_awaited = False
            self._owner.on_news(is_during_call=True)

    # Subchannels that only sessions use.

    def _create(self, host: Host, attributes: Attributes) -> HostSubchannel:
        inner = self._owner.create_inner(host.address, attributes)
        # A session outlives the child: its subchannel does not depend on the holder.
        return HostSubchannel(inner, attributes.without(HOLDER), host, self)

    def _renew(self, host: Host) -> None:
        """Have ours made with the newest attributes, without a time without a connection.

        Idempotent. Called when the attributes, the holder or a state has changed.
        """
        owned, renewed = host.owned, host.renewed
        if owned is None:
            return
        before, after = _relevant(owned.attributes), _relevant(host.attributes)
        if before == after:
            host.drop_renewed()
            return
        if renewed is None or _relevant(renewed.attributes) != after:
            host.drop_renewed()
            renewed = host.renewed = self._create(host, host.attributes)
        if renewed.state is State.READY or owned.state is not State.READY:
            host.owned, host.renewed = renewed, None
            owned.inner.release()
            self._tell_if_awaited(host)
        elif is_other_way_only(before, after):
            # A proxy is for the next connection: when this one is lost.
            host.drop_renewed()
        elif renewed.state is State.IDLE:  # New, or its backoff is over.
            renewed.request_connection()

    # The list.

    def _have(self, address: Address) -> Host:
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts[address] = Host(address)
        return host

    def _list(self, host: Host, endpoint: Endpoint) -> None:
        host.list_as(endpoint)
        self.listed[host.addresses[0]] = host
        self._renew(host)

    def _unlist(self, host: Host) -> None:
        del self.listed[host.addresses[0]]
        host.unlist()
        self._forget_if_unused(host)

    def _forget_if_unused(self, host: Host) -> None:
        if host.endpoint is None and host.subchannel is None:
            self._hosts.pop(host.address, None)


# ---------------------------------------------------------------------------------------------
# The sweep


def sweep(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> list[Host]:
    """Drop what no session used lately; whose subchannels were dropped (A75-37)."""
    expired = find_expired(hosts, now_s, idle_timeout_s)
    for host in expired:
        host.drop_owned()
    return expired


def find_expired(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> list[Host]:
    """Those with a subchannel of ours that no session used lately.

    One that is connecting is none: only a session asks it to, and that one still waits.
    """
    return [
        host
        for host in hosts
        if host.owned is not None
        and host.owned.state is not State.CONNECTING
        and host.is_expired(now_s, idle_timeout_s)
    ]


def next_sweep_delay_s(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> float:
    """When the first host will expire; what has expired but is still held is due (A75-38)."""
    delay_s = idle_timeout_s
    for host in hosts:
        if not host.is_expired(now_s, idle_timeout_s):
            delay_s = min(delay_s, host.last_used_s + idle_timeout_s - now_s)
        elif host.owned is not None:
            delay_s = 0.0
    return max(delay_s, SWEEP_INTERVAL_MIN_S)
