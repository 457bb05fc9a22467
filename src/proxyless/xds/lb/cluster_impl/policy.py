"""Is this RPC dropped, and who counts it?

Specs: A27 (drops), A32 (circuit breaker), LRS (load reports), A74-66 (TLS of the leaf cluster), A81
(authority rewriting).

All that holds for one cluster as a whole stands here, above its priorities (A75-06). A drop is
decided before any endpoint is looked at; what is not dropped is counted while it is under way.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Locality, State, Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.lb import QUEUE_PICKER, Complete, Drop, GracefulSwitch
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.config import parse_child_policy
from proxyless.lb.forwarding import ForwardingHelper, ForwardingSubchannel, join_trackers
from proxyless.lb.reentrancy import Hold
from proxyless.lb.view import LbNode, join_notes, place
from proxyless.xds.config import ClusterConfig
from proxyless.xds.config.attributes import HOSTNAME, LOCALITY, XDS_CLIENT, XDS_CONFIG
from proxyless.xds.error_texts import name_cluster, with_node
from proxyless.xds.filters.attributes import AUTO_HOST_REWRITE
from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS
from proxyless.xds.lb.pick_labels import LocalityPicker
from proxyless.xds.resources import EdsCluster
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS, ClusterTls, cluster_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Address, Attributes, ValidationErrors
    from proxyless.lb import CallEnd, Helper, Policy, PolicyConfig, PolicyRegistry, Update
    from proxyless.lb.api import CallTracker, Subchannel
    from proxyless.runtime import Random
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import XdsClient
    from proxyless.xds.client.load import ClusterLoad, LocalityLoad
    from proxyless.xds.lb.cluster_impl.call_counters import CallCounter, CounterKey
    from proxyless.xds.resources import DropCategory

NAME: Final = "xds_cluster_impl_experimental"

_MILLION: Final = 1_000_000

# ---------------------------------------------------------------------------------------------
# Config


@frozen
class ClusterImplConfig:
    """Which cluster, and what picks in it; None stands for a config that was refused."""

    cluster: str
    child_policy: PolicyConfig | None


# ---------------------------------------------------------------------------------------------
# Picks


@frozen
class CallLimit:
    """How many RPCs of a cluster are under way, and how many may be."""

    cluster: str
    counter: CallCounter
    maximum: int
    # For error texts.
    node_id: str = ""
    # What becomes of an RPC that would be one too many: made once, not for each picker.
    drop: Drop = field(init=False)

    def __post_init__(self) -> None:
        why = f"circuit breaker drop: {self.maximum} RPCs are under way, which is max_requests"
        object.__setattr__(self, "drop", _dropped(self.cluster, why, self.node_id))


class DroppingPicker(Picker):
    """Drops what is to be dropped, then asks the child."""

    __slots__ = (
        "_categories",
        "_child",
        "_counter",
        "_load",
        "_maximum",
        "_random",
        "_too_many",
        "is_dropping_all",
    )

    def __init__(
        self,
        child: Picker,
        categories: tuple[tuple[int, str, Drop], ...],
        limit: CallLimit,
        load: ClusterLoad | None,
        random: Random,
    ) -> None:
        self._child: Final = child
        self._categories: Final = categories
        self._counter: Final = limit.counter
        self._maximum: Final = limit.maximum
        self._load: Final = load
        self._random: Final = random
        self._too_many: Final = limit.drop
        # No RPC comes past the categories.
        self.is_dropping_all: Final = bool(categories) and any(
            per_million >= _MILLION for per_million, _, _ in categories
        )

    def pick(self, info: PickInfo) -> PickResult:
        for per_million, name, drop in self._categories:
            if self._random.randrange(_MILLION) < per_million:
                return self._drop(name, drop)
        if self._counter.total() >= self._maximum:
            return self._drop(None, self._too_many)
        result = self._child.pick(info)
        if type(result) is not Complete:
            return result
        # The child's are all ours.
        subchannel: CountedSubchannel = result.subchannel  # type: ignore[assignment]
        if subchannel.child_result is result and subchannel.passed_on is not None:
            return subchannel.passed_on
        return subchannel.answer(result, info)

    def _drop(self, category: str | None, drop: Drop) -> Drop:
        if self._load is not None:
            self._load.drop(category)
        return drop

    @property
    def status(self) -> Status:
        return OK if self.is_dropping_all else self._child.status


def drop_results(
    cluster: str, drops: tuple[DropCategory, ...], node_id: str = ""
) -> tuple[tuple[int, str, Drop], ...]:
    """What a picker does for each category: made once, not for each RPC."""
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


def _dropped(cluster: str, why: str, node_id: str) -> Drop:
    text = with_node(f"{name_cluster(cluster)}: {why}", node_id)
    return Drop(Status(StatusCode.UNAVAILABLE, text))


class _Tracker:
    """Counts RPCs of one subchannel: for the circuit breaker and for its locality.

    Never changes: an RPC ends where it began, whatever the cluster counts in by then.
    """

    __slots__ = ("_counter", "_load")

    def __init__(self, counter: CallCounter, load: LocalityLoad | None) -> None:
        self._counter = counter
        self._load = load

    def on_start(self) -> None:
        self._counter.active += 1
        if self._load is not None:
            self._load.on_start()

    def on_end(self, end: CallEnd) -> None:
        self._counter.end_call()
        if self._load is not None:
            self._load.on_end(end.status.is_ok)


class CountedSubchannel(ForwardingSubchannel):
    """A subchannel whose RPCs are counted. Driven by the child, and by its policy's updates."""

    __slots__ = ("_owner", "locality")

    def __init__(self, inner: Subchannel, locality: Locality, owner: ClusterImplPolicy) -> None:
        super().__init__(inner)
        self._owner: Final = owner
        self.locality: Final = locality

    def count_by(self, tracker: CallTracker) -> None:
        """From the next pick on."""
        self._tracker = tracker
        self.forget_result()

    def answer(self, result: Complete, _info: PickInfo) -> Complete:
        """What the parent is to see of a child's pick of this subchannel, for such an RPC."""
        return self.pass_on(result)

    def release(self) -> None:
        self._owner.forget(self)
        super().release()


class NamedSubchannel(CountedSubchannel):
    """One to an endpoint whose hostname may become the authority of RPCs (A81). Driven as any.

    There are two answers, and which one an RPC gets depends on its route. So they are kept here,
    and `passed_on` stays None: the picker calls `answer` for every RPC.
    """

    __slots__ = ("_as_it_is", "_hostname", "_rewritten")

    def __init__(
        self, inner: Subchannel, locality: Locality, owner: ClusterImplPolicy, hostname: str
    ) -> None:
        super().__init__(inner, locality, owner)
        self._hostname: Final = hostname
        # Made of the child's last result.
        self._as_it_is = self._rewritten = Complete(inner)

    def answer(self, result: Complete, info: PickInfo) -> Complete:
        if self.child_result is not result:
            tracker = join_trackers(self._tracker, result.tracker)
            self._as_it_is = Complete(self.inner, tracker, result.authority)
            self._rewritten = Complete(self.inner, tracker, self._hostname)
            self.child_result = result
        return self._rewritten if info.attributes.get(AUTO_HOST_REWRITE) else self._as_it_is


# ---------------------------------------------------------------------------------------------
# Policy


class ClusterImplPolicy:
    """One cluster. Driven by its parent and its child."""

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._child = ClusterImplChild(self, helper)
        # From the last update.
        self._entry: ClusterConfig | None = None
        self._limit: CallLimit | None = None
        self._counter_key: CounterKey = ("", "")
        self._reported_to: tuple[XdsClient, ServerConfig, CounterKey] | None = None
        self._load: ClusterLoad | None = None
        self._client: tuple[XdsClient, str] | None = None
        self._tls: ClusterTls | None = None
        self._may_rewrite = False
        # The child's, while it holds them.
        self._subchannels: dict[CountedSubchannel, None] = {}
        # From the child's last report.
        self._state = State.CONNECTING
        self._picker: Picker = QUEUE_PICKER
        # Around updates of the child.
        self._hold: Final = Hold(self._report)

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, ClusterImplConfig), "the config is one of ours"
        assert config.child_policy is not None, "a refused config is never used"
        self._use_cluster(config.cluster, update.attributes)
        with self._hold:
            return self._child.policy.update_child(update, config.child_policy, update.endpoints)

    def exit_idle(self) -> None:
        self._child.policy.exit_idle()

    def reset_backoff(self) -> None:
        self._child.policy.reset_backoff()

    def close(self) -> None:
        self._child.policy.close()
        self._report_load_to(None)
        if self._limit is not None:
            self._limit.counter.release()
            self._limit = None

    def describe(self) -> LbNode:
        child = place(self._child.policy.describe(), state=self._state, failure=self._picker.status)
        drops = tuple(each for each in self._drops if each.per_million)
        fatal = next((each for each in drops if each.per_million >= _MILLION), None)
        notes = [f"drops {each.per_million * 100 / _MILLION:g} % of {each.name}" for each in drops]
        # Of an aggregate it may be any leaf, so it says which.
        who = name_cluster(self._counter_key[0])
        barrier = ""
        if fatal is not None:
            barrier = f"{who}: drops every RPC, for {quote(fatal.name)}"
        if (limit := self._limit) is not None:
            active = limit.counter.total()
            note = f"{active} of {limit.maximum} requests in flight"
            if active >= limit.maximum:
                note = f"circuit breaker open: {note}"
                barrier = barrier or f"{who}: {note}"
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
        """Take over what the cluster's resources say. Without any, what they said stands."""
        xds_config = attributes.get(XDS_CONFIG)
        found = None if xds_config is None else xds_config.find(name)
        if not isinstance(found, ClusterConfig):
            if self._limit is None:
                self._use_counter((name, ""), _MILLION, "")
            return
        assert xds_config is not None, "a cluster was found in it"
        self._entry = found
        cluster = found.cluster
        discovery = cluster.discovery
        service = discovery.service_name if isinstance(discovery, EdsCluster) else ""
        self._use_counter((name, service), cluster.max_concurrent_requests, xds_config.node_id)
        client = attributes.get(XDS_CLIENT)
        if client is not None:
            # Connections that are made from now on are secured as this says (A74-68).
            self._use_client(client, name)
            assert self._tls is not None, "a client has the settings of its clusters"
            self._tls.tls = cluster.tls
        if client is None or cluster.lrs_server is None:
            self._report_load_to(None)
        else:
            self._report_load_to((client, cluster.lrs_server, self._counter_key))

    def _use_client(self, client: XdsClient, cluster: str) -> None:
        if (client, cluster) != self._client:
            self._client = (client, cluster)
            self._tls = cluster_tls(client, cluster)
            # No route rewrites the authority otherwise, and then RPCs do not pay for hostnames.
            self._may_rewrite = client.bootstrap.has_trusted_server

    def _use_counter(self, key: CounterKey, maximum: int, node_id: str) -> None:
        before = self._limit
        if before is None or key != self._counter_key:
            self._limit = CallLimit(key[0], PROCESS_COUNTERS.acquire(key), maximum, node_id)
            if before is not None:
                before.counter.release()
            self._counter_key = key
            self._count_anew()
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

    def _report_load_to(self, where: tuple[XdsClient, ServerConfig, CounterKey] | None) -> None:
        if where == self._reported_to:
            return
        before, self._load = self._load, None
        self._reported_to = where
        if where is not None:
            client, server, key = where
            self._load = client.load_stats(server, *key)
        # Not before: a server's stream lasts as long as somebody counts for it.
        if before is not None:
            before.release()
        self._count_anew()

    def _count_anew(self) -> None:
        """Connections outlive what their RPCs are counted in (A32-01, LRS-01)."""
        for subchannel in self._subchannels:
            subchannel.count_by(self._tracker_of(subchannel.locality))

    def _tracker_of(self, locality: Locality) -> _Tracker:
        assert self._limit is not None, "children act only after the first update"
        load = None
        if self._load is not None:
            load = self._load.locality((locality.region, locality.zone, locality.sub_zone))
        return _Tracker(self._limit.counter, load)

    # Called by the child.

    def wrap(self, inner: Subchannel, attributes: Attributes) -> Subchannel:
        """A subchannel whose RPCs are counted."""
        locality = attributes.get(LOCALITY) or Locality()
        hostname = attributes.get(HOSTNAME) if self._may_rewrite else None
        if hostname:
            subchannel: CountedSubchannel = NamedSubchannel(inner, locality, self, hostname)
        else:
            subchannel = CountedSubchannel(inner, locality, self)
        subchannel.count_by(self._tracker_of(locality))
        self._subchannels[subchannel] = None
        return subchannel

    def forget(self, subchannel: CountedSubchannel) -> None:
        """The child has released it. Idempotent."""
        self._subchannels.pop(subchannel, None)

    def secured(self, attributes: Attributes) -> Attributes:
        """With the TLS config of this cluster, for whoever makes the connection (A74-66)."""
        return attributes if self._tls is None else attributes.with_(UPSTREAM_TLS, self._tls)

    def on_report(self, state: State, picker: Picker) -> None:
        self._state, self._picker = state, picker
        if not self._hold.active:
            self._report()

    def _report(self) -> None:
        assert self._limit is not None, "children report only after the first update"
        is_measured, drops = self._helper.context.metrics.active, self._drops
        picker = DroppingPicker(
            LocalityPicker(self._picker) if is_measured else self._picker,
            drop_results(self._limit.cluster, drops, self._limit.node_id) if drops else (),
            self._limit,
            self._load,
            self._helper.context.random,
        )
        # "100 % drop works even with no endpoints (state READY)" (A32-03)
        self._helper.update_state(State.READY if picker.is_dropping_all else self._state, picker)


class ClusterImplChild(ForwardingHelper):
    """The policies below, and their helper."""

    __slots__ = ("_owner", "policy")

    def __init__(self, owner: ClusterImplPolicy, helper: Helper) -> None:
        super().__init__(helper)
        self._owner: Final = owner
        self.policy: Final = GracefulSwitch(self)

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        inner = super().create_subchannel(address, self._owner.secured(attributes))
        return self._owner.wrap(inner, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._owner.on_report(state, picker)


class ClusterImplFactory:
    """What the registry knows of xds_cluster_impl_experimental."""

    name: Final = NAME

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> ClusterImplConfig:
        fields = JsonObject(json, errors)
        cluster = fields.need_text("cluster")
        return ClusterImplConfig(cluster, parse_child_policy(fields, registry))

    def create(self, helper: Helper) -> Policy:
        return ClusterImplPolicy(helper)
