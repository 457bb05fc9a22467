"""The cds policy: one cluster of the XdsConfig.

Specs: A74-51..64 (the cluster comes from the XdsConfig), A75-01..15 (the tree), A37.

The policies below are those of `cluster_policies`. They are configured again only if their config
changed; endpoints are passed with every update, each tagged with the path of its children.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Key, State, Status, StatusCode, ValidationErrors, one_line
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, JsonObject
from proxyless.lb import QUEUE_PICKER, Drop, Fail, GracefulSwitchPolicy, Update
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.attributes import BACKEND_SERVICE, DELAY_KIND
from proxyless.lb.description import LbNode, wrap
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.hierarchy import charge_for
from proxyless.lb.pickers import FailPicker, ForwardingPicker, NotePicker
from proxyless.xds.config import ClusterConfig, ClusterError
from proxyless.xds.config.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CONFIG
from proxyless.xds.error_texts import name_cluster, node_phrase, with_node
from proxyless.xds.lb.cds.cluster_policies import AggregatePolicies, LeafPolicies
from proxyless.xds.lb.cds.priority_children import (
    ChildNumbers,
    EndpointBuilder,
    assign_numbers,
    child_name,
)
from proxyless.xds.resources import AggregateCluster, EdsCluster, EndpointResource, LbConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Attributes
    from proxyless.lb import Helper, PolicyRegistry
    from proxyless.lb.config import PolicyConfig
    from proxyless.xds.config import ClusterSubscription

LOGGER: Final = logging.getLogger("proxyless.xds.lb.cds")

NAME: Final = "cds_experimental"

BACKWARD_COMPAT: Final = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"

# Units of `runtime.work_queue`: the policies of a cluster, down to its priorities.
CONFIGURE_UNITS: Final = 300
# More localities than this are counted: their attributes, and their part of the splits of the
# endpoints.
LOCALITY_UNITS: Final = 10
UNCHARGED_LOCALITIES_MAX: Final = 20
# With more endpoints, the child is updated in a turn of its own.
UPDATED_AT_ONCE_MAX: Final = 5_000
UPDATE_UNITS: Final = 10

# Attribute of an update below an aggregate whose LB policy replaces that of the leaf (A75-13).
AGGREGATE_LB_CONFIG: Final[Key[LbConfig]] = Key("aggregate_lb_config")

# Attribute of an update: the clusters above this part of the tree, the topmost first.
_ANCESTORS: Final[Key[tuple[str, ...]]] = Key("clusters_above")
# A cluster's LB policy may itself be a cds policy, so the depth needs a limit.
NESTING_MAX: Final = 16

# A cluster without endpoints has one empty priority: drops and failover need a child (A74-38).
_EMPTY_PRIORITY: Final = ((),)


@frozen
class CdsConfig:
    """The cluster; `is_dynamic` if no route names it, so that the policy subscribes to it."""

    cluster: str
    is_dynamic: bool = False


def aggregate_policies(leaves: tuple[ClusterConfig, ...]) -> AggregatePolicies:
    return AggregatePolicies(
        tuple(
            (leaf.cluster_name, len(leaf.endpoints.priorities) or 1 if leaf.endpoints else 1)
            for leaf in leaves
        )
    )


def leaf_policies(
    entry: ClusterConfig, priorities: tuple[str, ...], lb_config: LbConfig
) -> LeafPolicies:
    cluster = entry.cluster
    is_eds = isinstance(cluster.discovery, EdsCluster)
    return LeafPolicies(
        entry.cluster_name, priorities, lb_config, cluster.outlier_detection, is_eds
    )


class DropPicker(Picker):
    """Drops the RPCs of a cluster that does not exist: they must not wait for it (A31-41)."""

    __slots__ = ("_result",)

    def __init__(self, status: Status) -> None:
        self._result: Final = Drop(status)

    def pick(self, info: PickInfo) -> PickResult:
        return self._result

    @property
    def status(self) -> Status:
        return self._result.status


class FailureNotePicker(ForwardingPicker):
    """Adds the cluster's name and its resolution note to the status of failures (A74-39).

    `is_empty`: the cluster has no endpoints; then the note, which is the cause, replaces the text
    of the policies below.
    """

    __slots__ = ("_cluster", "_is_empty", "_node_id", "_note")

    def __init__(
        self, child: Picker, cluster: str, note: str, node_id: str = "", *, is_empty: bool = False
    ) -> None:
        super().__init__(child)
        self._cluster: Final = cluster
        self._note: Final = note
        self._node_id: Final = node_id
        self._is_empty: Final = is_empty

    def pick(self, info: PickInfo) -> PickResult:
        result = self._child.pick(info)
        return Fail(self._with_note(result.status)) if isinstance(result, Fail) else result

    @property
    def status(self) -> Status:
        return self._with_note(self._child.status)

    def _with_note(self, status: Status) -> Status:
        text = f"{name_cluster(self._cluster)}: {self._note if self._is_empty else status.details}"
        if self._note not in text:
            text = f"{text} ({self._note})"
        return Status(status.code, with_node(text, self._node_id))


class CdsPolicy(ForwardingHelper):
    """Owns the policies of one cluster, and is their helper."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # Fixed at construction.
        self._helper = helper
        self._is_backward_compatible = read_flag(os.environ, BACKWARD_COMPAT, default=False)
        # Set while the XdsConfig has the cluster: child, and the last update that it got.
        self._child: GracefulSwitchPolicy | None = None
        self._entry: ClusterConfig | None = None
        self._lb_config = LbConfig()
        self._numbers = ChildNumbers()
        self._endpoints = EndpointBuilder()
        self._child_policies: LeafPolicies | AggregatePolicies | None = None
        self._child_config: PolicyConfig | None = None
        # The update of a large cluster until its turn.
        self._waiting: tuple[LeafPolicies, Update, ClusterConfig] | None = None
        # The picker of the child's last report, if that was TRANSIENT_FAILURE.
        self._failing: Picker | None = None
        # Held from the first update that has no key for a dynamic cluster (A74-54, D46).
        self._subscription: ClusterSubscription | None = None
        self._subscribed = ""
        # For error texts: from the last update, and what was logged last.
        self._node_id = ""
        self._logged = ""

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, CdsConfig), "the config has this policy's type"
        xds_config = update.attributes.get(XDS_CONFIG)
        if xds_config is None:
            return self._fail_with(config.cluster, "no xDS config in the update")
        self._node_id = xds_config.node_id
        ancestors = update.attributes.get(_ANCESTORS) or ()
        if config.cluster in ancestors or len(ancestors) >= NESTING_MAX:
            path = one_line(" > ".join((*ancestors, config.cluster)))
            return self._fail_with(config.cluster, f"is nested too deep: {path}")
        if config.cluster != self._subscribed:
            self._unsubscribe()
        result = xds_config.clusters.get(config.cluster)
        if result is None:
            if config.is_dynamic:
                self._subscribe(config.cluster, update.attributes)
            # A leaf of an aggregate may have no key: the aggregate's entry is used (D46).
            leaf = xds_config.find(config.cluster)
            if leaf is None:
                return self._on_absent(config)
            result = leaf if isinstance(leaf, ClusterError) else (leaf,)
        if isinstance(result, ClusterError):
            return self._on_error(result)
        attributes = update.attributes.with_(_ANCESTORS, (*ancestors, config.cluster))
        update = update.with_attributes(attributes)
        if _is_aggregate(result[0]):
            return self._update_aggregate(update, result)
        return self._update_leaf(update, result[0])

    def exit_idle(self) -> None:
        if self._child is not None:
            self._child.exit_idle()

    def reset_backoff(self) -> None:
        if self._child is not None:
            self._child.reset_backoff()

    def close(self) -> None:
        self._drop_child()
        self._unsubscribe()

    def describe(self) -> LbNode:
        if self._child is None or self._entry is None:
            # An error was reported already; a cluster without a resource has reported none.
            detail = "" if self._subscription is None else "waits for the cluster's resource"
            return LbNode(detail=detail)
        child = self._child.describe()
        # The note explains failures; a note with nothing but the node ID explains none.
        note = self._entry.resolution_note
        if note == node_phrase(self._node_id) or child.state == State.READY.name:
            note = ""
        return wrap(child, note)

    # Clusters without a ClusterConfig.

    def _subscribe(self, cluster: str, attributes: Attributes) -> None:
        """Subscribe once for each name, even if the cluster fails afterwards (A74-53)."""
        subscriptions = attributes.get(CLUSTER_SUBSCRIPTIONS)
        if self._subscription is None and subscriptions is not None:
            self._subscription, self._subscribed = subscriptions.subscribe(cluster), cluster

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.release()
            self._subscription = None

    def _on_absent(self, config: CdsConfig) -> Status:
        if not config.is_dynamic or self._subscription is None:
            return self._fail_with(config.cluster, "is not in the xDS config")
        if self._child is None:
            picker: Picker = QUEUE_PICKER
            if self.context.metrics.active:
                picker = NotePicker(picker, DELAY_KIND, "cds_dynamic_discovery")
            self._helper.update_state(State.CONNECTING, picker)
        return OK

    def _on_error(self, error: ClusterError) -> Status:
        if not error.does_not_exist:
            return self._fail(error.status)
        self._drop_child()
        self._log(error.status)
        self._helper.update_state(State.TRANSIENT_FAILURE, DropPicker(error.status))
        return OK

    def _fail_with(self, cluster: str, text: str) -> Status:
        details = with_node(f"{name_cluster(cluster)}: {text}", self._node_id)
        return self._fail(Status(StatusCode.UNAVAILABLE, details))

    def _fail(self, status: Status) -> Status:
        """Report failure. Returns OK: re-resolution would not help."""
        self._drop_child()
        self._log(status)
        self._helper.update_state(State.TRANSIENT_FAILURE, FailPicker(status))
        return OK

    def _trace(self, update: Update, entry: ClusterConfig) -> None:
        trace = self._helper.context.trace
        if trace.active:
            number = 0 if isinstance(update.endpoints, Status) else len(update.endpoints)
            note = entry.resolution_note
            trace.emit("cds.cluster", cluster=entry.cluster_name, endpoints=number, note=note)

    def _log(self, status: Status) -> None:
        """Log once, even if many updates fail in the same way."""
        if status.details != self._logged:
            self._logged = status.details
            LOGGER.warning("%s", status.details)

    def _drop_child(self) -> None:
        child, self._child = self._child, None
        self._waiting = None
        self._entry = self._child_policies = self._child_config = None
        self._failing = None
        if child is not None:
            child.close()

    # Clusters with a ClusterConfig.

    def _update_aggregate(self, update: Update, entries: tuple[ClusterConfig, ...]) -> Status:
        before, self._entry = self._entry, entries[0]
        attributes, own = update.attributes, entries[0].cluster.lb_config
        # It is not parsed before the environment has this flag.
        if self._is_backward_compatible and own.json:
            attributes = attributes.with_(AGGREGATE_LB_CONFIG, own)
        # Always passed on: a leaf may have changed (A74-64).
        status = self._update_child(
            aggregate_policies(entries[1:]), update.with_attributes(attributes), entries[0]
        )
        if self._failing is not None and self._entry is not before:
            # The note may be new, and leaves that have not changed do not report.
            self.update_state(State.TRANSIENT_FAILURE, self._failing)
        return status

    def _update_leaf(self, update: Update, entry: ClusterConfig) -> Status:
        lb_config = update.attributes.get(AGGREGATE_LB_CONFIG) or entry.cluster.lb_config
        is_same = entry is self._entry and lb_config.json == self._lb_config.json
        if is_same and not lb_config.reads_config:
            return OK
        self._entry, self._lb_config = entry, lb_config
        resource = entry.endpoints or EndpointResource(name=entry.cluster_name)
        self._numbers = assign_numbers(self._numbers, resource.priorities or _EMPTY_PRIORITY)
        names = tuple(child_name(entry.cluster_name, each) for each in self._numbers.numbers)
        endpoints = self._endpoints.build(
            resource,
            names[: len(resource.priorities)],
            has_http_proxies=entry.cluster.has_http_proxies,
            has_host_sni=entry.cluster.tls is not None and entry.cluster.tls.auto_host_sni,
        )
        localities = sum(map(len, resource.priorities))
        if localities > UNCHARGED_LOCALITIES_MAX:
            self.context.work.charge(localities * LOCALITY_UNITS)
        # "The value will be copied from `cds`'s service config `cluster` key" - A89
        attributes = update.attributes.with_(BACKEND_SERVICE, entry.cluster_name)
        child_update = Update(endpoints, update.config, attributes, entry.resolution_note)
        policies = leaf_policies(entry, names, lb_config)
        if len(endpoints) <= UPDATED_AT_ONCE_MAX:
            self._waiting = None
            return self._update_child(policies, child_update, entry)
        charge_for(endpoints, self.context.work)
        self._waiting = (policies, child_update, entry)
        self.context.work.run(self, UPDATE_UNITS)
        return OK

    def step(self) -> bool:
        """Update the child of a large cluster. Called by the work queue."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._update_child(*waiting)
        return False

    def _update_child(
        self, policies: LeafPolicies | AggregatePolicies, update: Update, entry: ClusterConfig
    ) -> Status:
        if policies != self._child_policies:
            errors = ValidationErrors()
            config = policies.configure(errors, self._helper.context.registry)
            if config is None or not errors.ok:
                return self._fail_with(entry.cluster_name, f"load balancing config: {errors}")
            self._child_policies, self._child_config = policies, config
            self.context.work.charge(CONFIGURE_UNITS)
            self._trace(update, entry)
        child_config = self._child_config
        assert child_config is not None, "the policies have been configured"
        if self._child is None:
            self._child = GracefulSwitchPolicy(self)
        self._logged = ""
        try:
            return self._child.update_child(update, child_config, update.endpoints)
        except Exception as error:
            # An application's policy may have a bug; only this cluster must fail.
            LOGGER.exception("%s: load balancing policy raised", name_cluster(entry.cluster_name))
            text = one_line(f"load balancing policy raised {type(error).__name__}: {error}")
            return self._fail_with(entry.cluster_name, text)

    # Called by the child.

    def update_state(self, state: State, picker: Picker) -> None:
        entry = self._entry
        assert entry is not None, "a child reports only after its first update"
        cluster = entry.cluster_name
        failing = picker if state is State.TRANSIENT_FAILURE else None
        if failing is not None:
            is_empty = _lacks_endpoints(entry)
            note = entry.resolution_note
            picker = FailureNotePicker(picker, cluster, note, self._node_id, is_empty=is_empty)
            # Logged once: each connection attempt may fail for another reason.
            if self._failing is None:
                LOGGER.info("%s", picker.status.details)
        elif self._failing is not None and state is State.READY:
            LOGGER.info("%s: READY again", name_cluster(cluster))
        self._failing = failing
        if self.context.metrics.active and not _is_aggregate(entry):
            from proxyless.metrics import instruments  # noqa: PLC0415 - few channels

            # "each pick that the information is available, regardless of the pick's result" - A89
            picker = NotePicker(picker, instruments.BACKEND_SERVICE, cluster)
        self._helper.update_state(state, picker)


def _lacks_endpoints(entry: ClusterConfig) -> bool:
    """Whether the lack of endpoints is the cause of failures; only leaves have endpoints."""
    if _is_aggregate(entry):
        return False
    return entry.endpoints is None or not entry.endpoints.has_endpoints


def _is_aggregate(entry: ClusterConfig) -> bool:
    return isinstance(entry.cluster.discovery, AggregateCluster)


class CdsFactory:
    """Factory of cds_experimental."""

    name: Final = NAME
    create = CdsPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> CdsConfig:
        fields = JsonObject(json, errors)
        is_dynamic = fields.read_or("isDynamic", BOOLEAN, default=False)
        return CdsConfig(fields.need_text("cluster"), is_dynamic)
