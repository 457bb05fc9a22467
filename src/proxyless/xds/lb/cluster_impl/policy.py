"""The xds_cluster_impl policy: drops, circuit breaker and load reports of one cluster.

Specs: A27 (drops), A32 (circuit breaker), LRS, A64 and A85 (load reports), A74-66 (TLS of the leaf
cluster), A81 (authority rewriting), A105 (connections per endpoint).

It is above the cluster's priorities (A75-06). The picker drops RPCs before the child picks; other
RPCs are counted while they are in flight.
"""

from __future__ import annotations

import os
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Locality,
    State,
    Status,
    StatusCode,
    one_line,
    quote,
)
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.lb import QUEUE_PICKER, Complete, Drop, GracefulSwitchPolicy
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.lb.config import parse_child_policy
from proxyless.lb.connection_limit import (
    CONNECTION_LIMIT,
    XDS_GUARD,
    ConnectionLimit,
    is_scaling_enabled,
)
from proxyless.lb.description import LbNode, as_child, join_notes
from proxyless.lb.forwarding import ForwardingHelper, ForwardingSubchannel, join_trackers
from proxyless.lb.pickers import ForwardingPicker
from proxyless.lb.reentrancy import Hold
from proxyless.xds.config import ClusterConfig
from proxyless.xds.config.attributes import HOSTNAME, LOCALITY, XDS_CLIENT, XDS_CONFIG
from proxyless.xds.error_texts import name_cluster, with_node
from proxyless.xds.filters.attributes import AUTO_HOST_REWRITE
from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS, ClusterTracker
from proxyless.xds.resources import EdsCluster
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS, ClusterTls, cluster_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.base import Address, Attributes, ValidationErrors
    from proxyless.lb import Helper, PolicyConfig, PolicyRegistry, Update
    from proxyless.lb.api import CallTracker, Picker, PickInfo, PickResult, Subchannel
    from proxyless.runtime import Random
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import XdsClient
    from proxyless.xds.client.load_counters import ClusterLoad
    from proxyless.xds.lb.cluster_impl.call_counters import CallCounter, CounterKey
    from proxyless.xds.resources import DropCategory
    from proxyless.xds.resources.cluster import BackendMetricPropagation

    # Counts a dropped RPC by its category; None: dropped by the circuit breaker.
    OnDrop = Callable[[str | None], None]
    LoadTarget = tuple[XdsClient, ServerConfig, CounterKey, BackendMetricPropagation | None]

NAME: Final = "xds_cluster_impl_experimental"

_MILLION: Final = 1_000_000


@frozen
class ClusterImplConfig:
    """The cluster and the policy below; None stands for a config that was rejected."""

    cluster: str
    child_policy: PolicyConfig | None


@frozen
class CallLimit:
    """The circuit breaker: the counter of a cluster's RPCs, and its maximum."""

    cluster: str
    counter: CallCounter
    maximum: int
    # For error texts.
    node_id: str = ""
    # The result for an RPC above the maximum; made once, not for each picker.
    drop: Drop = field(init=False)

    def __post_init__(self) -> None:
        reason = f"circuit breaker drop: {self.maximum} RPCs are under way, which is max_requests"
        object.__setattr__(self, "drop", _dropped(self.cluster, reason, self.node_id))


class ClusterImplPicker(ForwardingPicker):
    """Drops RPCs by category and by the circuit breaker; the child picks for the others."""

    __slots__ = (
        "_categories",
        "_counter",
        "_maximum",
        "_on_drop",
        "_over_limit",
        "_random",
        "is_dropping_all",
    )

    def __init__(
        self,
        child: Picker,
        categories: tuple[tuple[int, str, Drop], ...],
        limit: CallLimit,
        on_drop: OnDrop | None,
        random: Random,
    ) -> None:
        super().__init__(child)
        self._categories: Final = categories
        self._counter: Final = limit.counter
        self._maximum: Final = limit.maximum
        self._on_drop: Final = on_drop
        self._random: Final = random
        self._over_limit: Final = limit.drop
        self.is_dropping_all: Final = any(rate >= _MILLION for rate, _, _ in categories)

    def pick(self, info: PickInfo) -> PickResult:
        for per_million, name, drop in self._categories:
            if self._random.randrange(_MILLION) < per_million:
                return self._drop(name, drop)
        if self._counter.total() >= self._maximum:
            return self._drop(None, self._over_limit)
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        if result.parent_result is not None:
            return result.parent_result
        # This policy wrapped all subchannels of the child.
        subchannel: ClusterImplSubchannel = result.subchannel  # type: ignore[assignment]
        return subchannel.convert_result(result, info)

    def _drop(self, category: str | None, drop: Drop) -> Drop:
        if self._on_drop is not None:
            self._on_drop(category)
        return drop

    @property
    def status(self) -> Status:
        return OK if self.is_dropping_all else self._child.status


def drop_results(
    cluster: str, drops: tuple[DropCategory, ...], node_id: str = ""
) -> tuple[tuple[int, str, Drop], ...]:
    """Rate, name and pick result of each category; made once, not for each RPC."""
    return tuple(
        (
            each.per_million,
            each.name,
            _dropped(
                cluster, f"EDS-configured drop: {one_line(each.name, NAME_LENGTH_MAX)}", node_id
            ),
        )
        for each in drops
        if each.per_million
    )


def _dropped(cluster: str, reason: str, node_id: str) -> Drop:
    text = with_node(f"{name_cluster(cluster)}: {reason}", node_id)
    return Drop(Status(StatusCode.UNAVAILABLE, text))


class ClusterImplSubchannel(ForwardingSubchannel):
    """A subchannel whose RPCs are counted."""

    __slots__ = ("_owner", "locality")

    def __init__(self, inner: Subchannel, locality: Locality, owner: ClusterImplPolicy) -> None:
        super().__init__(inner)
        self._owner: Final = owner
        self.locality: Final = locality

    def set_tracker(self, tracker: CallTracker) -> None:
        """Count by this tracker from the next pick on."""
        self._tracker = tracker
        self.clear_results()

    def convert_result(self, result: Complete, _info: PickInfo) -> Complete:
        """The parent's result for a child's pick of this subchannel."""
        return self.to_parent_result(result)

    def release(self) -> None:
        self._owner.on_release(self)
        super().release()


class HostnameSubchannel(ClusterImplSubchannel):
    """A subchannel to an endpoint whose hostname may become the authority of RPCs (A81).

    The route of the RPC decides between two results. So they are kept here, and the child's results
    have none of the parent: the picker calls `convert_result` for every RPC.
    """

    __slots__ = ("_hostname", "_rewritten", "_unchanged")

    def __init__(
        self, inner: Subchannel, locality: Locality, owner: ClusterImplPolicy, hostname: str
    ) -> None:
        super().__init__(inner, locality, owner)
        self._hostname: Final = hostname
        # Made from `child_result`.
        self._unchanged = self._rewritten = Complete(inner)

    def convert_result(self, result: Complete, info: PickInfo) -> Complete:
        if self.child_result is not result:
            tracker = join_trackers(self._tracker, result.tracker)
            self._unchanged = Complete(self.inner, tracker, result.authority)
            self._rewritten = Complete(self.inner, tracker, self._hostname)
            self.child_result = result
        return self._rewritten if info.attributes.get(AUTO_HOST_REWRITE) else self._unchanged


class ClusterImplPolicy(ForwardingHelper):
    """Owns the counters and wrapped subchannels of one cluster; helper of its child."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitchPolicy(self)
        # Shared by all subchannels; None unless the environment enables it (A105).
        is_scaled = is_scaling_enabled(os.environ, XDS_GUARD)
        self._connections: Final = ConnectionLimit() if is_scaled else None
        # From the last update.
        self._entry: ClusterConfig | None = None
        self._limit: CallLimit | None = None
        self._counter_key: CounterKey = ("", "")
        self._load_target: LoadTarget | None = None
        self._load: ClusterLoad | None = None
        self._client: tuple[XdsClient, str] | None = None
        self._tls: ClusterTls | None = None
        self._may_rewrite = False
        # The last attributes of a subchannel, as the child passed them and extended. Endpoints
        # share them.
        self._last_attributes: tuple[Attributes | None, Attributes] = (None, EMPTY_ATTRIBUTES)
        # The child's subchannels until it releases them.
        self._subchannels: dict[ClusterImplSubchannel, None] = {}
        # Trackers of the current counters, which the subchannels of a locality share.
        self._trackers: dict[Locality, ClusterTracker] = {}
        # From the child's last report.
        self._state = State.CONNECTING
        self._picker: Picker = QUEUE_PICKER
        # Active during updates of the child.
        self._hold: Final = Hold(self._report)

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, ClusterImplConfig), "the config has this policy's type"
        assert config.child_policy is not None, "a rejected config is never used"
        self._use_cluster(config.cluster, update.attributes)
        with self._hold:
            return self._child.update_child(update, config.child_policy, update.endpoints)

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        self._child.reset_backoff()

    def close(self) -> None:
        self._child.close()
        self._report_load_to(None)
        if self._limit is not None:
            self._limit.counter.release()
            self._limit = None

    def describe(self) -> LbNode:
        child = as_child(self._child.describe(), state=self._state, failure=self._picker.status)
        drops = tuple(each for each in self._drops if each.per_million)
        fatal = next((each for each in drops if each.per_million >= _MILLION), None)
        notes = [f"drops {each.per_million * 100 / _MILLION:g} % of {each.name}" for each in drops]
        # An aggregate has several leaves, so the text names this one.
        cluster = name_cluster(self._counter_key[0])
        barrier = ""
        if fatal is not None:
            barrier = f"{cluster}: drops every RPC, for {quote(fatal.name)}"
        if (limit := self._limit) is not None:
            active = limit.counter.total()
            note = f"{active} of {limit.maximum} requests in flight"
            if active >= limit.maximum:
                note = f"circuit breaker open: {note}"
                barrier = barrier or f"{cluster}: {note}"
            notes.append(note)
        state = self._state if fatal is None else State.READY
        problem = barrier or child.problem
        detail = join_notes(*notes)
        return LbNode("", "", state.name, detail, (child,), problem, barrier=barrier)

    @property
    def _drops(self) -> tuple[DropCategory, ...]:
        endpoints = None if self._entry is None else self._entry.endpoints
        return () if endpoints is None else endpoints.drops

    def _use_cluster(self, name: str, attributes: Attributes) -> None:
        """Apply the cluster's resources; if the XdsConfig has none, the last ones stay in use."""
        xds_config = attributes.get(XDS_CONFIG)
        found = None if xds_config is None else xds_config.find(name)
        if not isinstance(found, ClusterConfig):
            if self._limit is None:
                self._use_counter((name, ""), _MILLION, "")
            return
        assert xds_config is not None, "the cluster was found in it"
        self._entry = found
        cluster = found.cluster
        discovery = cluster.discovery
        service = discovery.service_name if isinstance(discovery, EdsCluster) else ""
        self._use_counter((name, service), cluster.max_concurrent_requests, xds_config.node_id)
        if self._connections is not None:
            self._connections.set(cluster.max_connections_per_subchannel)
        client = attributes.get(XDS_CLIENT)
        if client is not None:
            # Applies to connections from now on (A74-68).
            self._use_client(client, name).tls = cluster.tls
        if client is None or cluster.lrs_server is None:
            self._report_load_to(None)
        else:
            propagation = cluster.metric_propagation
            self._report_load_to((client, cluster.lrs_server, self._counter_key, propagation))

    def _use_client(self, client: XdsClient, cluster: str) -> ClusterTls:
        if self._tls is None or (client, cluster) != self._client:
            self._client = (client, cluster)
            self._tls = cluster_tls(client, cluster)
            self._last_attributes = (None, EMPTY_ATTRIBUTES)
            # Only trusted servers may have routes rewrite the authority; without one, picks skip
            # the hostnames.
            self._may_rewrite = client.bootstrap.has_trusted_server
        return self._tls

    def _use_counter(self, key: CounterKey, maximum: int, node_id: str) -> None:
        before = self._limit
        if before is None or key != self._counter_key:
            self._limit = CallLimit(key[0], PROCESS_COUNTERS.acquire(key), maximum, node_id)
            if before is not None:
                before.counter.release()
            self._counter_key = key
            self._replace_trackers()
        elif before.maximum != maximum:
            self._limit = CallLimit(key[0], before.counter, maximum, node_id)
        trace = self._helper.context.trace
        if trace.active and self._limit is not before:
            trace.emit(
                "xds_cluster_impl.cluster",
                cluster=key[0],
                max_requests=maximum,
                drops=[each.name for each in self._drops],
            )

    def _report_load_to(self, target: LoadTarget | None) -> None:
        if target == self._load_target:
            return
        before, self._load = self._load, None
        self._load_target = target
        if target is not None:
            client, server, key, _ = target
            self._load = client.load_stats(server, *key)
        # Released last: releasing a server's only load closes its LRS stream.
        if before is not None:
            before.release()
        self._replace_trackers()

    def _replace_trackers(self) -> None:
        """Subchannels outlive the counters of their RPCs (A32-01, LRS-01)."""
        self._trackers = {}
        for subchannel in self._subchannels:
            subchannel.set_tracker(self._find_tracker(subchannel.locality))

    def _find_tracker(self, locality: Locality) -> ClusterTracker:
        tracker = self._trackers.get(locality)
        if tracker is None:
            tracker = self._trackers[locality] = self._create_tracker(locality)
        return tracker

    def _create_tracker(self, locality: Locality) -> ClusterTracker:
        assert self._limit is not None, "children act only after the first update"
        counter = self._limit.counter
        if self._load is None or self._load_target is None:
            return ClusterTracker(counter, None)
        load = self._load.locality((locality.region, locality.zone, locality.sub_zone))
        propagation = self._load_target[-1]
        if propagation is None:
            return ClusterTracker(counter, load)
        from proxyless.xds.lb.cluster_impl.metric_propagation import (  # noqa: PLC0415 - seldom
            MetricsTracker,
        )

        return MetricsTracker(counter, load, propagation)

    # Called by the child and its subchannels.

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        """A subchannel with the TLS config of this cluster (A74-66), whose RPCs are counted."""
        if attributes is not self._last_attributes[0]:
            self._last_attributes = (attributes, self._extend(attributes))
        secured = self._last_attributes[1]
        locality = attributes.get(LOCALITY) or Locality()
        if self._helper.context.metrics.active and self._limit is not None:
            # "attributes with the values for the … labels" - A94
            secured = secured.with_(BACKEND_SERVICE, self._limit.cluster).with_(
                LOCALITY_LABEL, locality.label
            )
        inner = self._helper.create_subchannel(address, secured)
        hostname = attributes.get(HOSTNAME) if self._may_rewrite else None
        if hostname:
            subchannel: ClusterImplSubchannel = HostnameSubchannel(inner, locality, self, hostname)
        else:
            subchannel = ClusterImplSubchannel(inner, locality, self)
        subchannel.set_tracker(self._find_tracker(locality))
        self._subchannels[subchannel] = None
        return subchannel

    def _extend(self, attributes: Attributes) -> Attributes:
        """The attributes, with TLS and the limit of connections."""
        tls = self._tls
        extended = attributes if tls is None else attributes.with_(UPSTREAM_TLS, tls)
        if self._connections is None:
            return extended
        return extended.with_(CONNECTION_LIMIT, self._connections)

    def on_release(self, subchannel: ClusterImplSubchannel) -> None:
        """Idempotent."""
        self._subchannels.pop(subchannel, None)

    def update_state(self, state: State, picker: Picker) -> None:
        self._state, self._picker = state, picker
        if not self._hold.active:
            self._report()

    def _report(self) -> None:
        assert self._limit is not None, "children report only after the first update"
        drops, inner = self._drops, self._picker
        if self._helper.context.metrics.active:
            from proxyless.xds.lb.pick_labels import LocalityPicker  # noqa: PLC0415 - few channels

            inner = LocalityPicker(inner)
        picker = ClusterImplPicker(
            inner,
            drop_results(self._limit.cluster, drops, self._limit.node_id) if drops else (),
            self._limit,
            self._choose_on_drop(),
            self._helper.context.random,
        )
        # A27-55: "100 % drop works even with no endpoints (state READY)"
        self._helper.update_state(State.READY if picker.is_dropping_all else self._state, picker)

    def _choose_on_drop(self) -> OnDrop | None:
        """What counts drops: load reports, metrics, both or nothing."""
        count_load = None if self._load is None else self._load.drop
        metrics = self._helper.context.metrics
        if not metrics.active:
            return count_load
        assert self._limit is not None, "children report only after the first update"
        from proxyless.xds.lb.cluster_impl.drop_metrics import count_drop  # noqa: PLC0415

        return partial(count_drop, metrics, self._limit.cluster, count_load)


class ClusterImplFactory:
    """Factory of xds_cluster_impl_experimental."""

    name: Final = NAME
    create = ClusterImplPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> ClusterImplConfig:
        fields = JsonObject(json, errors)
        cluster = fields.need_text("cluster")
        return ClusterImplConfig(cluster, parse_child_policy(fields, registry))
