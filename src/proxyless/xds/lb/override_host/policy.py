"""How do the RPCs of a session stay on their backend?

Specs: A75 "Stateful Session Affinity Changes" (A75-29..71), A55, A60.

The filter tells where the session lives (`OVERRIDE_HOST`), and is told where the RPC went. As long
as that host is listed and can be reached, RPCs of the session go there, whatever the child would
pick, and even if the child has no subchannel to it: then the policy has one of its own, until no
session used it for the cluster's idle_timeout. Who holds what is in `session_hosts`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base import State, Status
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.lb import QUEUE, Complete, GracefulSwitch
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.config import parse_child_policy
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.reentrancy import Hold, SoonQueue
from proxyless.lb.view import LbNode, describe_subchannel, in_seconds, place, wrap
from proxyless.runtime import IDLE_TIMER
from proxyless.xds.config import ClusterConfig
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.filters.attributes import OVERRIDE_HOST
from proxyless.xds.lb.override_host.hosts import (
    Host,
    Hosts,
    HostSubchannel,
    Verdict,
    choose_host,
    find_expired,
    health_of,
    next_sweep_delay_s,
    sweep,
)
from proxyless.xds.resources import HealthStatus
from proxyless.xds.resources.cluster import IDLE_TIMEOUT_DEFAULT_S, OVERRIDE_HOST_STATUS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Address, Attributes, ValidationErrors
    from proxyless.lb import Endpoints, Helper, Policy, PolicyConfig, PolicyRegistry, Update
    from proxyless.lb.api import Subchannel
    from proxyless.xds.filters.attributes import OverrideHost

NAME: Final = "xds_override_host_experimental"

# ---------------------------------------------------------------------------------------------
# Config


@frozen
class OverrideHostConfig:
    """Which cluster, and what picks in it; None stands for a config that was refused."""

    cluster: str
    child_policy: PolicyConfig | None


# ---------------------------------------------------------------------------------------------
# Picker


class OverrideHostPicker(Picker):
    """Sends sessions where they live, and has the child pick for the others.

    The hosts are the policy's own and change with it: picks run on the policy's loop.
    """

    __slots__ = ("_child", "_owner", "_usable")

    def __init__(self, owner: OverrideHostPolicy, child: Picker) -> None:
        self._owner: Final = owner
        self._child: Final = child
        self._usable: Final = owner.usable

    def pick(self, info: PickInfo) -> PickResult:
        override = info.attributes.get(OVERRIDE_HOST)
        if override is not None and override.cookie_addresses:
            result = self._pick_override(override)
            if result is not None:
                return result
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        # The child's are all ours.
        subchannel: HostSubchannel = result.subchannel  # type: ignore[assignment]
        if override is not None:
            self._on_used(override, subchannel.host)
        if subchannel.child_result is result and subchannel.passed_on is not None:
            return subchannel.passed_on
        return subchannel.pass_on(result)

    def _pick_override(self, override: OverrideHost) -> PickResult | None:
        hosts = self._owner.hosts.listed
        verdict, host = choose_host(override.cookie_addresses, hosts, self._usable)
        if verdict is Verdict.DELEGATE:
            return None
        if verdict is Verdict.USE:
            assert host is not None, "a host was found READY"
            subchannel = host.subchannel
            assert subchannel is not None, "what is READY is a subchannel"
            self._on_used(override, host)
            return subchannel.override
        for address in override.cookie_addresses:
            if (each := hosts.get(address)) is not None:
                each.is_awaited = True
        if host is not None:
            self._owner.attend_soon(host)
        return QUEUE

    def _on_used(self, override: OverrideHost, host: Host) -> None:
        # The address may not be listed any more: then there is nothing to say about it (A75-68).
        if host.endpoint is not None:
            host.last_used_s = self._owner.now_s()
            override.actual_addresses = host.addresses

    @property
    def status(self) -> Status:
        return self._child.status


# ---------------------------------------------------------------------------------------------
# Policy


class OverrideHostPolicy:
    """Owns the subchannels that only sessions need. Driven by parent, child, timers and picks."""

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitch(OverrideHostChild(self, helper))
        self.hosts: Final = Hosts(self)
        # From the last update: health statuses of hosts that sessions may stay on, and the rest.
        self.usable: frozenset[HealthStatus] = OVERRIDE_HOST_STATUS_DEFAULT
        self._idle_timeout_s = IDLE_TIMEOUT_DEFAULT_S
        # Pending from the first update that had endpoints; and when it will be over.
        self._sweep_timer = IDLE_TIMER
        self._sweep_s = 0.0
        # Hosts to connect or to create after the current call; and whether to report then.
        self._wanted = SoonQueue[Host](helper.context.clock, self._act)
        self._has_news = False
        # The child's last report; and the hold around its updates.
        self._report: tuple[State, Picker] | None = None
        self._hold: Final = Hold(self._publish)
        self._is_closed = False

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, OverrideHostConfig), "the config is one of ours"
        assert config.child_policy is not None, "a refused config is never used"
        self._use_cluster(config.cluster, update.attributes)
        with self._hold:
            endpoints = self._take_endpoints(update.endpoints)
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
        self._wanted.cancel()
        # First, so that nothing that the child releases is kept, and old pickers find no host.
        self.hosts.clear()
        self._child.close()

    def describe(self) -> LbNode:
        child = self._child.describe()
        if self._report is not None:
            state, picker = self._report
            child = place(child, state=state, failure=picker.status)
        owned = tuple(self._describe_owned(host) for host in self.hosts if host.owned is not None)
        detail = f"{len(owned)} subchannels held for sessions only" if owned else ""
        return wrap(child, detail, owned)

    def _describe_owned(self, host: Host) -> LbNode:
        left_s = max(host.last_used_s + self._idle_timeout_s - self.now_s(), 0)
        note = f"held for sessions, idle timeout {in_seconds(left_s)} left"
        return replace(describe_subchannel(host.address, host.state, note=note), in_use=False)

    # Updates.

    def _use_cluster(self, name: str, attributes: Attributes) -> None:
        """Take over what the cluster's resource says. Without any, what it said stands."""
        xds_config = attributes.get(XDS_CONFIG)
        found = None if xds_config is None else xds_config.find(name)
        if isinstance(found, ClusterConfig):
            self.usable = found.cluster.override_host_status
            self._idle_timeout_s = found.cluster.idle_timeout_s

    def _take_endpoints(self, endpoints: Endpoints) -> Endpoints:
        """List them; returns those that the child may know of (A75-31)."""
        if isinstance(endpoints, Status):
            return endpoints
        active = tuple(each for each in endpoints if health_of(each) is not HealthStatus.DRAINING)
        # Sessions may stay on a host that drains, if the cluster says so.
        self.hosts.replace(endpoints if HealthStatus.DRAINING in self.usable else active)
        return active

    # The sweep.

    def _restart_sweep_timer(self) -> None:
        context = self._helper.context
        now_s = self.now_s()
        delay_s = next_sweep_delay_s(self.hosts, now_s, self._idle_timeout_s)
        if self._sweep_timer.pending and find_expired(self.hosts, now_s, self._idle_timeout_s):
            # Five seconds are between runs: updates that come more often do not put one off.
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
            # A pick may have waited for one of them.
            self._publish()

    # Called by hosts.

    def create_inner(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._helper.create_subchannel(address, attributes)

    def keeps(self, host: Host) -> bool:
        """Whether a subchannel that the child releases is still needed (A75-41)."""
        keeps = host.endpoint is not None and not host.is_expired(
            self.now_s(), self._idle_timeout_s
        )
        if keeps:
            self._trace("override_host.kept", host)
        return keeps

    def on_news(self, *, is_during_call: bool) -> None:
        """Report, so that RPCs that wait are picked for again; soon, if the child may do so."""
        if self._hold.active or self._is_closed:
            return
        if is_during_call:
            self._has_news = True
            self._wanted.request()
        else:
            self._publish()

    # Called by pickers.

    def now_s(self) -> float:
        return self._helper.context.clock.now_s()

    def attend_soon(self, host: Host) -> None:
        """Connect this host, or give it a subchannel: soon, because this is during a pick."""
        self._wanted.add(host)

    def _act(self, wanted: list[Host]) -> None:
        created = [host for host in wanted if self._connect_or_create(host)]
        # With a new subchannel those who wait find an IDLE host.
        if created or self._has_news:
            self._publish()

    def _connect_or_create(self, host: Host) -> bool:
        """Whether it has a subchannel now that it did not have."""
        if host.subchannel is not None:
            host.subchannel.request_connection()
            return False
        if host.endpoint is None:
            # It vanished; the update that did it told those who wait (A75-67).
            return False
        self.hosts.own(host)
        self._trace("override_host.created", host)
        return True

    # Called by the child.

    def on_report(self, state: State, picker: Picker) -> None:
        self._report = (state, picker)
        if not self._hold.active:
            self._publish()

    # Reports.

    def _publish(self) -> None:
        """Report what the child reported last, with hosts as they are now."""
        self._has_news = False
        if self._report is not None:
            state, picker = self._report
            self._helper.update_state(state, OverrideHostPicker(self, picker))

    def _trace(self, name: str, host: Host) -> None:
        trace = self._helper.context.trace
        if trace.active:
            trace.emit(name, address=str(host.address), last_used_s=host.last_used_s)


class OverrideHostChild(ForwardingHelper):
    """What the child acts through."""

    __slots__ = ("_owner",)

    def __init__(self, owner: OverrideHostPolicy, helper: Helper) -> None:
        super().__init__(helper)
        self._owner: Final = owner

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._owner.hosts.create_for_child(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._owner.on_report(state, picker)


class OverrideHostFactory:
    """What the registry knows of xds_override_host_experimental."""

    name: Final = NAME

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> OverrideHostConfig:
        fields = JsonObject(json, errors)
        cluster = fields.need_text("clusterName")
        return OverrideHostConfig(cluster, parse_child_policy(fields, registry))

    def create(self, helper: Helper) -> Policy:
        return OverrideHostPolicy(helper)
