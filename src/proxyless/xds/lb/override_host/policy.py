"""The xds_override_host policy: RPCs of a session go to the session's host.

Specs: A75 "Stateful Session Affinity Changes" (A75-29..71), A55, A60.

The session filter sets the RPC attribute `OVERRIDE_HOST` from the cookie; the picker writes the
chosen addresses into it. If the host is listed and can be reached, the picker uses it in place of
the child's choice, even if the child has no subchannel to it: then the policy owns one, until no
session has used it for the cluster's idle_timeout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base import State, Status
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.lb import QUEUE, Complete, GracefulSwitchPolicy
from proxyless.lb.config import parse_child_policy
from proxyless.lb.description import LbNode, as_child, describe_subchannel, format_seconds, wrap
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.pickers import ForwardingPicker
from proxyless.lb.reentrancy import Hold
from proxyless.runtime import IDLE_TIMER, SoonQueue
from proxyless.xds.config import ClusterConfig
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.filters.attributes import OVERRIDE_HOST
from proxyless.xds.lb.override_host.choice import Verdict, choose_host
from proxyless.xds.lb.override_host.hosts import (
    Host,
    Hosts,
    HostSubchannel,
    find_expired,
    health_of,
    next_sweep_delay_s,
    sweep,
)
from proxyless.xds.resources import HealthStatus, LbConfig
from proxyless.xds.resources.cluster import IDLE_TIMEOUT_DEFAULT_S, OVERRIDE_HOST_STATUS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Address, Attributes, Endpoint, ValidationErrors
    from proxyless.lb import Endpoints, Helper, PolicyConfig, PolicyRegistry, Update
    from proxyless.lb.api import Picker, PickInfo, PickResult, Subchannel
    from proxyless.xds.filters.attributes import OverrideHost

NAME: Final = "xds_override_host_experimental"


@frozen
class OverrideHostConfig:
    """The cluster and the policy below; None stands for a config that was rejected."""

    cluster: str
    child_policy: PolicyConfig | None
    # Whether the policy below reads the XdsConfig. It may keep its last update, and a cluster that
    # does not change would keep the routes and clusters of an old config.
    passes_config: bool


class OverrideHostPicker(ForwardingPicker):
    """Picks the host of the RPC's session; the child picks for other RPCs.

    Not a snapshot: it reads the policy's hosts, which change. Picks run on the policy's loop.
    """

    __slots__ = ("_owner", "_usable")

    def __init__(self, owner: OverrideHostPolicy, child: Picker) -> None:
        super().__init__(child)
        self._owner: Final = owner
        self._usable: Final = owner.usable

    def pick(self, info: PickInfo) -> PickResult:
        override = info.attributes.get(OVERRIDE_HOST)
        if override is not None and not self._owner.has_sessions:
            self._owner.start_sessions()
        if override is not None and override.cookie_addresses:
            result = self._pick_override(override)
            if result is not None:
                return result
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        if override is None and result.parent_result is not None:
            return result.parent_result
        # This policy wrapped all subchannels of the child.
        subchannel: HostSubchannel = result.subchannel  # type: ignore[assignment]
        if override is not None:
            self._on_used(override, subchannel.host)
        return subchannel.to_parent_result(result)

    def _pick_override(self, override: OverrideHost) -> PickResult | None:
        hosts = self._owner.hosts.listed
        verdict, host = choose_host(override.cookie_addresses, hosts, self._usable)
        if verdict is Verdict.DELEGATE:
            return None
        if verdict is Verdict.USE:
            assert host is not None, "USE has a host"
            subchannel = host.subchannel
            assert subchannel is not None, "the host's subchannel is READY"
            self._on_used(override, host)
            return subchannel.override
        for address in override.cookie_addresses:
            if (each := hosts.get(address)) is not None:
                each.is_awaited = True
        if host is not None:
            self._owner.connect_soon(host)
        return QUEUE

    def _on_used(self, override: OverrideHost, host: Host) -> None:
        # The child may still use an address that is not listed any more (A75-68).
        if host.endpoint is not None:
            host.last_used_s = self._owner.now_s()
            override.actual_addresses = host.addresses


class OverrideHostPolicy(ForwardingHelper):
    """Owns the subchannels that only sessions need; helper of its child."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitchPolicy(self)
        self.hosts: Final = Hosts(self)
        # Whether there has been an RPC of a session. Until then no host is listed: most clusters
        # have no sessions, and some have thousands of endpoints.
        self.has_sessions = False
        self._session_endpoints: tuple[Endpoint, ...] = ()
        # From the last update: `usable` are the health statuses of hosts that sessions may use.
        self.usable: frozenset[HealthStatus] = OVERRIDE_HOST_STATUS_DEFAULT
        self._idle_timeout_s = IDLE_TIMEOUT_DEFAULT_S
        # Pending from the first update with endpoints; and when it fires.
        self._sweep_timer = IDLE_TIMER
        self._sweep_s = 0.0
        # Hosts to connect after the current call; and whether queued picks wait for a report.
        self._to_connect = SoonQueue[Host](helper.context.clock, self._connect_hosts)
        self._has_changes = False
        # The child's last report; and the hold, active during its updates.
        self._report: tuple[State, Picker] | None = None
        self._hold: Final = Hold(self._publish)
        self._is_closed = False

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, OverrideHostConfig), "the config has this policy's type"
        assert config.child_policy is not None, "a rejected config is never used"
        self._use_cluster(config.cluster, update.attributes)
        if not config.passes_config:
            update = update.with_attributes(update.attributes.without(XDS_CONFIG))
        with self._hold:
            endpoints = self._list_endpoints(update.endpoints)
            status = self._child.update_child(update, config.child_policy, endpoints)
            if self._sweep_timer.pending or not isinstance(endpoints, Status):
                self._restart_sweep_timer()
        return status

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        for host in self.hosts:
            host.reset_backoff()
        self._child.reset_backoff()

    def close(self) -> None:
        self._is_closed = True
        self._sweep_timer.cancel()
        self._to_connect.cancel()
        # Cleared first: what the child releases is not kept, and old pickers find no host.
        self.hosts.clear()
        self._child.close()

    def describe(self) -> LbNode:
        child = self._child.describe()
        if self._report is not None:
            state, picker = self._report
            child = as_child(child, state=state, failure=picker.status)
        owned = tuple(self._describe_owned(host) for host in self.hosts if host.owned is not None)
        detail = f"{len(owned)} subchannels held for sessions only" if owned else ""
        return wrap(child, detail, owned)

    def _describe_owned(self, host: Host) -> LbNode:
        left_s = max(host.last_used_s + self._idle_timeout_s - self.now_s(), 0)
        note = f"held for sessions, idle timeout {format_seconds(left_s)} left"
        return replace(describe_subchannel(host.address, host.state, note=note), in_use=False)

    # Updates.

    def _use_cluster(self, name: str, attributes: Attributes) -> None:
        """Apply the cluster's resource; if the XdsConfig has none, the last one stays in use."""
        xds_config = attributes.get(XDS_CONFIG)
        found = None if xds_config is None else xds_config.find(name)
        if isinstance(found, ClusterConfig):
            self.usable = found.cluster.override_host_status
            self._idle_timeout_s = found.cluster.idle_timeout_s

    def _list_endpoints(self, endpoints: Endpoints) -> Endpoints:
        """List the hosts of sessions; returns the child's endpoints (A75-31)."""
        if isinstance(endpoints, Status):
            return endpoints
        # Thousands of endpoints share few attributes.
        by_attributes = {id(each.attributes): each for each in endpoints}
        draining = {
            key for key, each in by_attributes.items() if health_of(each) is HealthStatus.DRAINING
        }
        active = endpoints
        if draining:
            active = tuple(each for each in endpoints if id(each.attributes) not in draining)
        # Sessions may stay on a draining host if the cluster's override_host_status has DRAINING.
        self._session_endpoints = endpoints if HealthStatus.DRAINING in self.usable else active
        if self.has_sessions:
            self.hosts.replace(self._session_endpoints)
        return active

    # The sweep.

    def _restart_sweep_timer(self) -> None:
        context = self._helper.context
        now_s = self.now_s()
        delay_s = next_sweep_delay_s(self.hosts, now_s, self._idle_timeout_s)
        if self._sweep_timer.pending and find_expired(self.hosts, now_s, self._idle_timeout_s):
            # The minimum is between runs: frequent updates must not postpone a due sweep.
            delay_s = min(delay_s, self._sweep_s - now_s)
        self._sweep_timer.cancel()
        self._sweep_s = now_s + delay_s
        self._sweep_timer = context.clock.call_later(delay_s, self._on_sweep)
        if context.trace.active:
            context.trace.emit("override_host.sweep_scheduled", delay_s=delay_s)

    def _on_sweep(self) -> None:
        dropped = sweep(self.hosts, self.now_s(), self._idle_timeout_s)
        self._restart_sweep_timer()
        for host in dropped:
            self._trace("override_host.dropped", host)
        if dropped:
            # A pick may be queued for one of them.
            self._publish()

    # Called by hosts.

    def create_inner_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._helper.create_subchannel(address, attributes)

    def should_keep(self, host: Host) -> bool:
        """Whether sessions need a subchannel that the child releases (A75-41)."""
        is_needed = host.endpoint is not None and not host.is_expired(
            self.now_s(), self._idle_timeout_s
        )
        if is_needed:
            self._trace("override_host.kept", host)
        return is_needed

    def on_host_change(self) -> None:
        # An update reports at its end.
        self._has_changes = not self._hold.active and not self._is_closed

    def report_changes(self) -> None:
        if self._has_changes:
            self._publish()

    def report_changes_soon(self) -> None:
        if self._has_changes:
            self._to_connect.request()

    # Called by pickers.

    def start_sessions(self) -> None:
        """List the hosts, now and at each update. Idempotent."""
        if not self._is_closed:
            self.has_sessions = True
            self.hosts.replace(self._session_endpoints)

    def now_s(self) -> float:
        return self._helper.context.clock.now_s()

    def connect_soon(self, host: Host) -> None:
        """Connect the host after the current pick; create its subchannel if it has none."""
        self._to_connect.add(host)

    def _connect_hosts(self, hosts: list[Host]) -> None:
        created = [host for host in hosts if self._connect_or_create(host)]
        # Queued picks are retried: they find the new subchannel IDLE and connect it.
        if created or self._has_changes:
            self._publish()

    def _connect_or_create(self, host: Host) -> bool:
        """Returns True if the host has a new subchannel."""
        if host.subchannel is not None:
            host.subchannel.request_connection()
            return False
        if host.endpoint is None:
            # The update that removed the host has published a picker (A75-67).
            return False
        self.hosts.own(host)
        self._trace("override_host.created", host)
        return True

    # Called by the child.

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self.hosts.create_for_child(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._report = (state, picker)
        if not self._hold.active:
            self._publish()

    # Reports.

    def _publish(self) -> None:
        """Report the child's last state with a new picker."""
        self._has_changes = False
        if self._report is not None:
            state, picker = self._report
            self._helper.update_state(state, OverrideHostPicker(self, picker))

    def _trace(self, name: str, host: Host) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit(name, address=str(host.address), last_used_s=host.last_used_s)


class OverrideHostFactory:
    """Factory of xds_override_host_experimental."""

    name: Final = NAME
    create = OverrideHostPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> OverrideHostConfig:
        fields = JsonObject(json, errors)
        cluster = fields.need_text("clusterName")
        policy = parse_child_policy(fields, registry)
        return OverrideHostConfig(cluster, policy, LbConfig.of((json,)).reads_config)
