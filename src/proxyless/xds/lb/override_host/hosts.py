"""Hosts that sessions may use, and the owner of each of their subchannels.

Specs: A75 "Changes in xds_override_host LB Policy" (A75-29..43, A75-52..63, A75-71).

Theory of operation
    A host is one address of an endpoint. It has the child's subchannel, or one that this policy
    owns because a session needs it and the child has none, or no subchannel. The child gets a
    wrapper: when it releases the wrapper, this policy may take over the subchannel with its
    connection. An unlisted address has a host only while the child has a subchannel to it.

    An owned subchannel is replaced when an update changes its attributes: at once if it has no
    connection, or if the new one shares it; otherwise when the new one is READY.

Nothing here reports, waits or reads the clock.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, OK, Address, Attributes, Key, State, Status
from proxyless.lb.api import Complete
from proxyless.lb.attributes import ENDPOINT_WEIGHT, HASH_KEY, HOLDER, differ_only_in_proxy
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.hierarchy import without_path
from proxyless.xds.config.attributes import HEALTH_STATUS, LOCALITY_WEIGHT
from proxyless.xds.resources import HealthStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def health_of(endpoint: Endpoint) -> HealthStatus:
    return endpoint.attributes.get(HEALTH_STATUS) or HealthStatus.UNKNOWN


class Host:
    """One address, and its subchannels. Changed by `Hosts` and by the picks of sessions."""

    __slots__ = (
        "address",
        "addresses",
        "endpoint",
        "health",
        "held_by_child",
        "is_awaited",
        "last_used_s",
        "owned",
        "replacement",
    )

    def __init__(self, address: Address) -> None:
        # Fixed at construction.
        self.address: Final = address
        # From the last update. A host without an endpoint is not listed.
        self.endpoint: Endpoint | None = None
        self.health = HealthStatus.UNKNOWN
        self.addresses: tuple[str, ...] = ()
        # Set by picks: the time of a session's last use, and whether an RPC is queued for the host.
        self.last_used_s = _NEVER
        self.is_awaited = False
        # The child's subchannels, and the owned one, which exists only if the child has none.
        self.held_by_child: dict[HostSubchannel, None] = {}
        self.owned: HostSubchannel | None = None
        # Connects while `owned` still serves; takes its place when READY.
        self.replacement: HostSubchannel | None = None

    @property
    def subchannel(self) -> HostSubchannel | None:
        """The subchannel that sessions use: the child's newest, or the owned one."""
        return next(reversed(self.held_by_child), self.owned)

    @property
    def attributes(self) -> Attributes:
        """The endpoint's attributes as the child's policies pass them, to share its connection."""
        endpoint = self.endpoint
        return EMPTY_ATTRIBUTES if endpoint is None else without_path(endpoint.attributes)

    @property
    def state(self) -> State | None:
        subchannel = self.subchannel
        return None if subchannel is None else subchannel.state

    def set_endpoint(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.health = health_of(endpoint)
        self.addresses = (str(self.address),)
        if len(endpoint.addresses) > 1:
            others = [each for each in endpoint.addresses if each != self.address]
            self.addresses += tuple(map(str, others))

    def unlist(self) -> None:
        self.endpoint = None
        self.addresses = ()
        self.last_used_s = _NEVER
        self.drop_owned()

    def drop_owned(self) -> None:
        """Release the owned subchannels, if any."""
        self.drop_replacement()
        subchannel, self.owned = self.owned, None
        if subchannel is not None:
            subchannel.inner.release()

    def drop_replacement(self) -> None:
        subchannel, self.replacement = self.replacement, None
        if subchannel is not None:
            subchannel.inner.release()

    def reset_backoff(self) -> None:
        """Reset the backoff of the owned subchannels."""
        for subchannel in (self.owned, self.replacement):
            if subchannel is not None:
                subchannel.reset_backoff()

    def is_expired(self, now_s: float, idle_timeout_s: float) -> bool:
        """Whether no session used the host within the idle timeout."""
        return self.last_used_s + idle_timeout_s <= now_s


class HostSubchannel(ForwardingSubchannel):
    """A subchannel whose owner may change from the child to the policy.

    It has one watch of the inner subchannel, and passes states on to the child's listeners, which
    are not called after the child has released it.
    """

    __slots__ = (
        "_child_listeners",
        "_child_watches",
        "_hosts",
        "_override",
        "_status",
        "attributes",
        "host",
        "state",
    )

    def __init__(self, inner: Subchannel, attributes: Attributes, host: Host, hosts: Hosts) -> None:
        super().__init__(inner)
        # Fixed at construction.
        self.attributes: Final = attributes
        self.host: Final = host
        self._hosts: Final = hosts
        self._override: Complete | None = None
        # From the inner subchannel.
        self.state: State | None = None
        self._status = OK
        # The child's listeners, and its watches of health and load. Removed by `release`.
        self._child_listeners: tuple[StateListener, ...] = ()
        self._child_watches: tuple[_ChildWatch, ...] = ()
        inner.watch(self._on_state)

    @property
    def override(self) -> Complete:
        """The pick result for RPCs of the host's sessions."""
        if self._override is None:
            self._override = Complete(self.inner)
        return self._override

    def watch(self, listener: StateListener) -> Cancel:
        assert self.state is not None, "the first call was inside `inner.watch`"
        # Added first: the listener may request a connection.
        self._child_listeners += (listener,)
        listener(self.state, self._status)
        return partial(self._remove_listener, listener)

    def _remove_listener(self, listener: StateListener) -> None:
        self._child_listeners = tuple(each for each in self._child_listeners if each != listener)

    def watch_health(self, listener: StateListener) -> Cancel:
        return self._until_released(self.inner.watch_health(listener))

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        return self._until_released(self.inner.watch_load_reports(interval_s, listener))

    def release(self) -> None:
        watches, self._child_watches, self._child_listeners = self._child_watches, (), ()
        for watch in watches:
            watch.cancel_inner()
        self.clear_results()
        self._hosts.on_child_release(self)

    def _until_released(self, cancel_inner: Cancel) -> Cancel:
        watch = _ChildWatch(self, cancel_inner)
        self._child_watches += (watch,)
        return watch

    def cancel_child_watch(self, watch: _ChildWatch) -> None:
        # `release` may have cancelled it.
        if watch in self._child_watches:
            self._child_watches = tuple(each for each in self._child_watches if each is not watch)
            watch.cancel_inner()

    def _on_state(self, state: State, status: Status) -> None:
        before, self.state, self._status = self.state, state, status
        if before is None:
            return
        has_changed = self._hosts.on_state(self, before)
        for listener in self._child_listeners:
            if listener in self._child_listeners:
                listener(state, status)
        if has_changed:
            self._hosts.report_changes()


class _ChildWatch:
    """Cancels a child's watch when it is called. It is one object; a `partial` needs three."""

    __slots__ = ("_subchannel", "cancel_inner")

    def __init__(self, subchannel: HostSubchannel, cancel_inner: Cancel) -> None:
        self._subchannel: Final = subchannel
        self.cancel_inner: Final = cancel_inner

    def __call__(self) -> None:
        self._subchannel.cancel_child_watch(self)


def _relevant(attributes: Attributes) -> Attributes:
    """The attributes that a subchannel, or a policy that wraps it, depends on."""
    attributes = without_path(attributes)
    for key in _IRRELEVANT:
        attributes = attributes.without(key)
    return attributes


class HostsOwner(Protocol):
    """The policy, as `Hosts` calls it."""

    def create_inner_subchannel(self, address: Address, attributes: Attributes) -> Subchannel: ...

    def should_keep(self, host: Host) -> bool:
        """Whether to own the host's subchannel that the child releases."""

    def on_host_change(self) -> None:
        """Note that queued picks have to be retried. One of the next two calls follows."""

    def report_changes(self) -> None:
        """Retry queued picks, unless a report of the child has done it since."""

    def report_changes_soon(self) -> None:
        """Like `report_changes`, after the current call, which is one of the child."""


class Hosts:
    """All hosts of a cluster."""

    __slots__ = ("_hosts", "_last_attributes", "_owner", "listed")

    def __init__(self, owner: HostsOwner) -> None:
        # Fixed at construction.
        self._owner: Final = owner
        # The last attributes of the child, with and without their holder. Endpoints share them.
        self._last_attributes = (EMPTY_ATTRIBUTES, EMPTY_ATTRIBUTES)
        # Every host: listed, or with a subchannel of the child's.
        self._hosts: dict[Address, Host] = {}
        # The listed hosts by address, read by pickers. "Keys are endpoint addresses" (A75-29)
        self.listed: Final[dict[str, Host]] = {}

    def __iter__(self) -> Iterator[Host]:
        return iter(self.listed.values())

    def replace(self, endpoints: Iterable[Endpoint]) -> None:
        """List exactly these endpoints. The first endpoint of a duplicate address is used."""
        by_address: dict[Address, Endpoint] = {}
        for endpoint in endpoints:
            for address in endpoint.addresses:
                by_address.setdefault(address, endpoint)
        for unlisted in [each for each in self if each.address not in by_address]:
            self._unlist(unlisted)
        hosts = self._hosts
        for address, endpoint in by_address.items():
            host = hosts.get(address)
            if host is None:
                host = hosts[address] = Host(address)
            if host.endpoint is not endpoint:
                host.set_endpoint(endpoint)
                self.listed[host.addresses[0]] = host
                if host.owned is not None:
                    self._refresh_owned(host)

    def create_for_child(self, address: Address, attributes: Attributes) -> HostSubchannel:
        """The child's subchannel to this address; an owned one is released (A75-43)."""
        host = self._ensure_host(address)
        subchannel = self._create(host, attributes)
        host.held_by_child[subchannel] = None
        # Dropped last: the new one may share the connection, which must stay open.
        host.drop_owned()
        self._notify_if_awaited(host)
        return subchannel

    def own(self, host: Host) -> None:
        """Create a subchannel for sessions to a host that has none."""
        assert host.subchannel is None, "a host has one subchannel at a time"
        host.owned = self._create(host, host.attributes)

    def clear(self) -> None:
        """Unlist all hosts, and release the owned subchannels."""
        for host in list(self):
            self._unlist(host)

    # Called by subchannels.

    def on_child_release(self, subchannel: HostSubchannel) -> None:
        """Release the inner subchannel, or own it from now on."""
        host = subchannel.host
        if subchannel not in host.held_by_child:
            # The child released it twice; the policy may own it by now.
            return
        del host.held_by_child[subchannel]
        if host.subchannel is None and self._owner.should_keep(host):
            host.owned = subchannel
            self._refresh_owned(host)
            return
        subchannel.inner.release()
        self._remove_if_unused(host)
        self._notify_if_awaited(host)

    def on_state(self, subchannel: HostSubchannel, before: State) -> bool:
        """Whether queued RPCs may depend on the state: the child may not report it."""
        host = subchannel.host
        if subchannel is host.replacement:
            self._refresh_owned(host)
        if subchannel is not host.subchannel or subchannel.state is before:
            return False
        is_lost = before is State.READY and host.last_used_s != _NEVER
        if not (subchannel is host.owned or host.is_awaited or is_lost):
            return False
        host.is_awaited = False
        self._refresh_owned(host)
        self._owner.on_host_change()
        return True

    def report_changes(self) -> None:
        self._owner.report_changes()

    def _notify_if_awaited(self, host: Host) -> None:
        """Called inside calls of the child."""
        if host.is_awaited:
            host.is_awaited = False
            self._owner.on_host_change()
            self._owner.report_changes_soon()

    # Owned subchannels.

    def _create(self, host: Host, attributes: Attributes) -> HostSubchannel:
        inner = self._owner.create_inner_subchannel(host.address, attributes)
        if attributes is not self._last_attributes[0]:
            # A session outlives the child: its subchannel does not depend on the holder.
            self._last_attributes = (attributes, attributes.without(HOLDER))
        return HostSubchannel(inner, self._last_attributes[1], host, self)

    def _refresh_owned(self, host: Host) -> None:
        """Replace the owned subchannel if its attributes are old, without losing a connection.

        Idempotent. Called when the attributes, the holder or a state has changed.
        """
        owned, replacement = host.owned, host.replacement
        if owned is None:
            return
        before, after = _relevant(owned.attributes), _relevant(host.attributes)
        if before == after:
            host.drop_replacement()
            return
        if replacement is None or _relevant(replacement.attributes) != after:
            host.drop_replacement()
            replacement = host.replacement = self._create(host, host.attributes)
        if replacement.state is State.READY or owned.state is not State.READY:
            host.owned, host.replacement = replacement, None
            owned.inner.release()
            self._notify_if_awaited(host)
        elif differ_only_in_proxy(before, after):
            # A new proxy is used for the next connection, after this one is lost.
            host.drop_replacement()
        elif replacement.state is State.IDLE:  # New, or its backoff is over.
            replacement.request_connection()

    # The list.

    def _ensure_host(self, address: Address) -> Host:
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts[address] = Host(address)
        return host

    def _unlist(self, host: Host) -> None:
        del self.listed[host.addresses[0]]
        host.unlist()
        self._remove_if_unused(host)

    def _remove_if_unused(self, host: Host) -> None:
        if host.endpoint is None and host.subchannel is None:
            self._hosts.pop(host.address, None)


# The sweep


def sweep(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> list[Host]:
    """Release the owned subchannels of expired hosts; returns these hosts (A75-37)."""
    expired = find_expired(hosts, now_s, idle_timeout_s)
    for host in expired:
        host.drop_owned()
    return expired


def find_expired(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> list[Host]:
    """Hosts with an owned subchannel that no session used within the idle timeout.

    A CONNECTING subchannel is not expired: a session has requested the connection and waits.
    """
    return [
        host
        for host in hosts
        if host.owned is not None
        and host.owned.state is not State.CONNECTING
        and host.is_expired(now_s, idle_timeout_s)
    ]


def next_sweep_delay_s(hosts: Iterable[Host], now_s: float, idle_timeout_s: float) -> float:
    """The time until the next host expires; expired hosts with a subchannel are due (A75-38)."""
    delay_s = idle_timeout_s
    for host in hosts:
        if not host.is_expired(now_s, idle_timeout_s):
            delay_s = min(delay_s, host.last_used_s + idle_timeout_s - now_s)
        elif host.owned is not None:
            delay_s = 0.0
    return max(delay_s, SWEEP_INTERVAL_MIN_S)
