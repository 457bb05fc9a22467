"""What is one cluster, as a tree of policies?

Specs: A74-51..64 (the cluster comes from the XdsConfig), A75-01..15 (the tree), A37.

Which policies those are, `cluster_policies` says. They are configured anew only if something in
them changed; the endpoints go down beside that, each tagged with the children that it is for.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import OK, Key, State, Status, StatusCode, ValidationErrors, one_line
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, JsonObject
from proxyless.lb import QUEUE_PICKER, Drop, Fail, GracefulSwitch, Update
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.attributes import BACKEND_SERVICE
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.pickers import FailPicker
from proxyless.lb.view import LbNode, wrap
from proxyless.xds.config import ClusterConfig, ClusterError
from proxyless.xds.config.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CONFIG
from proxyless.xds.error_texts import name_cluster, node_phrase, with_node
from proxyless.xds.lb.cds.child_names import (
    ChildNumbers,
    EndpointMaker,
    assign_numbers,
    child_name,
)
from proxyless.xds.lb.cds.cluster_policies import AggregatePolicies, LeafPolicies
from proxyless.xds.lb.pick_labels import ServicePicker
from proxyless.xds.resources import AggregateCluster, EdsCluster, EndpointResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Attributes
    from proxyless.lb import Helper, Policy, PolicyRegistry
    from proxyless.lb.config import PolicyConfig
    from proxyless.xds.config import ClusterSubscription

LOGGER: Final = logging.getLogger("proxyless.xds.lb.cds")

NAME: Final = "cds_experimental"

BACKWARD_COMPAT: Final = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"

# Of an update, below an aggregate that insists on its own LB policy: that policy (A75-13).
AGGREGATE_LB_CONFIG: Final[Key[tuple[Any, ...]]] = Key("aggregate_lb_config")

# Of an update: the clusters that this part of the tree is below, the highest first.
_ABOVE: Final[Key[tuple[str, ...]]] = Key("clusters_above")
# A control plane may ask for a cds as a cluster's LB policy; the tree has to end all the same.
NESTING_MAX: Final = 16

LbConfig = tuple[Any, ...]

# A cluster without endpoints has a branch all the same: drops and failover need it (A74-38).
_EMPTY_PRIORITY: Final = ((),)

# ---------------------------------------------------------------------------------------------
# Config


@frozen
class CdsConfig:
    """Which cluster, and whether no route names it."""

    cluster: str
    is_dynamic: bool = False


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> CdsConfig:
    fields = JsonObject(json, errors)
    is_dynamic = fields.read_or("isDynamic", BOOLEAN, default=False)
    return CdsConfig(fields.need_text("cluster"), is_dynamic)


# ---------------------------------------------------------------------------------------------
# Decision: the child


def aggregate_child(leaves: tuple[ClusterConfig, ...]) -> AggregatePolicies:
    """The policies of an aggregate."""
    return AggregatePolicies(
        tuple(
            (leaf.cluster_name, len(leaf.endpoints.priorities) or 1 if leaf.endpoints else 1)
            for leaf in leaves
        )
    )


def leaf_child(entry: ClusterConfig, names: tuple[str, ...], lb_config: LbConfig) -> LeafPolicies:
    """The policies of one cluster, whose priorities have these names."""
    cluster = entry.cluster
    is_eds = isinstance(cluster.discovery, EdsCluster)
    return LeafPolicies(entry.cluster_name, names, lb_config, cluster.outlier_detection, is_eds)


# ---------------------------------------------------------------------------------------------
# Pickers


class DropPicker(Picker):
    """The cluster does not exist: its RPCs must not wait for it (A31-41)."""

    __slots__ = ("_result",)

    def __init__(self, status: Status) -> None:
        self._result: Final = Drop(status)

    def pick(self, info: PickInfo) -> PickResult:
        return self._result

    @property
    def status(self) -> Status:
        return self._result.status


class NotingPicker(Picker):
    """Adds to a failure whose it is, and what is known about the endpoints (A74-39).

    Without endpoints that is the cause, and what policies make of an empty list is left out.
    """

    __slots__ = ("_cluster", "_is_empty", "_node_id", "_note", "_picker")

    def __init__(
        self,
        picker: Picker,
        cluster: str,
        note: str,
        node_id: str = "",
        *,
        is_empty: bool = False,
    ) -> None:
        self._picker: Final = picker
        self._cluster: Final = cluster
        self._note: Final = note
        self._node_id: Final = node_id
        self._is_empty: Final = is_empty

    def pick(self, info: PickInfo) -> PickResult:
        result = self._picker.pick(info)
        return Fail(self._with_note(result.status)) if isinstance(result, Fail) else result

    @property
    def status(self) -> Status:
        return self._with_note(self._picker.status)

    def _with_note(self, status: Status) -> Status:
        text = f"{name_cluster(self._cluster)}: {self._note if self._is_empty else status.details}"
        if self._note not in text:
            text = f"{text} ({self._note})"
        return Status(status.code, with_node(text, self._node_id))


# ---------------------------------------------------------------------------------------------
# Policy


class CdsPolicy:
    """One cluster's policies. Driven by its parent and its child."""

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._is_backward_compatible = read_flag(os.environ, BACKWARD_COMPAT, default=False)
        # Present while the cluster is known.
        self._child: CdsChild | None = None
        # From the last update that was passed on.
        self._entry: ClusterConfig | None = None
        self._lb_config: LbConfig = ()
        self._numbers = ChildNumbers()
        self._endpoints = EndpointMaker()
        self._child_policies: LeafPolicies | AggregatePolicies | None = None
        self._child_config: PolicyConfig | None = None
        # Held from the first update that has no key for a dynamic cluster (A74-54, D46).
        self._subscription: ClusterSubscription | None = None
        self._subscribed = ""
        # For error texts: from the last update, and what was logged last.
        self._node_id = ""
        self._logged = ""

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, CdsConfig), "the config is one of ours"
        xds_config = update.attributes.get(XDS_CONFIG)
        if xds_config is None:
            return self._fail_with(config.cluster, "no xDS config in the update")
        self._node_id = xds_config.node_id
        above = update.attributes.get(_ABOVE) or ()
        if config.cluster in above or len(above) >= NESTING_MAX:
            way = one_line(" > ".join((*above, config.cluster)))
            return self._fail_with(config.cluster, f"is nested too deep: {way}")
        result = xds_config.clusters.get(config.cluster)
        if result is None:
            if config.is_dynamic:
                self._subscribe(config.cluster, update.attributes)
            # A leaf of an aggregate has no key of its own: what the aggregate has is used (D46).
            leaf = xds_config.find(config.cluster)
            if leaf is None:
                return self._on_absent(config)
            result = leaf if isinstance(leaf, ClusterError) else (leaf,)
        if isinstance(result, ClusterError):
            return self._on_error(result)
        attributes = update.attributes.with_(_ABOVE, (*above, config.cluster))
        update = update.with_attributes(attributes)
        if _is_aggregate(result[0]):
            return self._update_aggregate(update, result)
        return self._update_leaf(update, result[0])

    def exit_idle(self) -> None:
        if self._child is not None:
            self._child.policy.exit_idle()

    def reset_backoff(self) -> None:
        if self._child is not None:
            self._child.policy.reset_backoff()

    def close(self) -> None:
        self._drop_child()
        self._unsubscribe()

    def describe(self) -> LbNode:
        if self._child is None:
            # The report said why; a cluster that is not there yet has made none.
            detail = "" if self._subscription is None else "waits for the cluster's resource"
            return LbNode(detail=detail)
        child = self._child.policy.describe()
        # While all is well, a note is about nothing; and who we are is said elsewhere.
        note = self._child.entry.resolution_note
        if note == node_phrase(self._node_id) or child.state == State.READY.name:
            note = ""
        return wrap(child, note)

    # Clusters that are not there

    def _subscribe(self, cluster: str, attributes: Attributes) -> None:
        """Once for each name, whatever becomes of the cluster (A74-53)."""
        subscriptions = attributes.get(CLUSTER_SUBSCRIPTIONS)
        if cluster != self._subscribed and subscriptions is not None:
            self._unsubscribe()
            self._subscription, self._subscribed = subscriptions.subscribe(cluster), cluster

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.release()
            self._subscription = None

    def _on_absent(self, config: CdsConfig) -> Status:
        if not config.is_dynamic or self._subscription is None:
            return self._fail_with(config.cluster, "is not in the xDS config")
        if self._child is None:
            self._helper.update_state(State.CONNECTING, QUEUE_PICKER)
        return OK

    def _on_error(self, error: ClusterError) -> Status:
        if not error.does_not_exist:
            return self._fail(error.status)
        self._drop_child()
        self._log(error.status)
        self._helper.update_state(State.TRANSIENT_FAILURE, DropPicker(error.status))
        return OK

    def _fail_with(self, cluster: str, text: str) -> Status:
        whole = with_node(f"{name_cluster(cluster)}: {text}", self._node_id)
        return self._fail(Status(StatusCode.UNAVAILABLE, whole))

    def _fail(self, status: Status) -> Status:
        """Nothing can be picked from. The resolver cannot help, so the update counts as used."""
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
        """Once, however many updates say the same."""
        if status.details != self._logged:
            self._logged = status.details
            LOGGER.warning("%s", status.details)

    def _drop_child(self) -> None:
        child, self._child = self._child, None
        self._entry = self._child_policies = self._child_config = None
        if child is not None:
            child.policy.close()

    # Clusters that are

    def _update_aggregate(self, update: Update, entries: tuple[ClusterConfig, ...]) -> Status:
        self._entry = None
        attributes = update.attributes
        if self._is_backward_compatible:
            attributes = attributes.with_(AGGREGATE_LB_CONFIG, entries[0].cluster.lb_config)
        # Always passed on: a leaf may have changed (A74-64).
        return self._update_child(
            aggregate_child(entries[1:]), update.with_attributes(attributes), entries[0]
        )

    def _update_leaf(self, update: Update, entry: ClusterConfig) -> Status:
        lb_config = update.attributes.get(AGGREGATE_LB_CONFIG) or entry.cluster.lb_config
        if entry is self._entry and lb_config == self._lb_config:
            return OK
        self._entry, self._lb_config = entry, lb_config
        resource = entry.endpoints or EndpointResource(name=entry.cluster_name)
        self._numbers = assign_numbers(self._numbers, resource.priorities or _EMPTY_PRIORITY)
        names = tuple(child_name(entry.cluster_name, each) for each in self._numbers.numbers)
        endpoints = self._endpoints.make(
            resource,
            names[: len(resource.priorities)],
            has_http_proxies=entry.cluster.has_http_proxies,
            has_host_sni=entry.cluster.tls is not None and entry.cluster.tls.auto_host_sni,
        )
        # "The value will be copied from `cds`'s service config `cluster` key" - A89
        attributes = update.attributes.with_(BACKEND_SERVICE, entry.cluster_name)
        whole = Update(endpoints, update.config, attributes, entry.resolution_note)
        return self._update_child(leaf_child(entry, names, lb_config), whole, entry)

    def _update_child(
        self, policies: LeafPolicies | AggregatePolicies, update: Update, entry: ClusterConfig
    ) -> Status:
        if policies != self._child_policies:
            errors = ValidationErrors()
            config = policies.configure(errors, self._helper.context.registry)
            if config is None or not errors.ok:
                return self._fail_with(entry.cluster_name, f"load balancing config: {errors}")
            self._child_policies, self._child_config = policies, config
            self._trace(update, entry)
        child_config = self._child_config
        assert child_config is not None, "the policies have been configured"
        if self._child is None:
            self._child = CdsChild(self._helper, entry)
        self._logged = ""
        self._child.entry, self._child.node_id = entry, self._node_id
        try:
            return self._child.policy.update_child(update, child_config, update.endpoints)
        except Exception as error:
            # A policy may be an application's own; its bug is the trouble of this cluster only.
            LOGGER.exception("%s: load balancing policy raised", name_cluster(entry.cluster_name))
            text = one_line(f"load balancing policy raised {type(error).__name__}: {error}")
            return self._fail_with(entry.cluster_name, text)


def _lacks_endpoints(entry: ClusterConfig) -> bool:
    """Whether there is nowhere to go, and the note says why. An aggregate never has any itself."""
    if _is_aggregate(entry):
        return False
    return entry.endpoints is None or not entry.endpoints.has_endpoints


def _is_aggregate(entry: ClusterConfig) -> bool:
    return isinstance(entry.cluster.discovery, AggregateCluster)


class CdsChild(ForwardingHelper):
    """The policies below, and their helper."""

    __slots__ = ("_is_failing", "entry", "node_id", "policy")

    def __init__(self, helper: Helper, entry: ClusterConfig) -> None:
        super().__init__(helper)
        self.policy: Final = GracefulSwitch(self)
        # From the last update: the cluster of these policies.
        self.entry = entry
        self.node_id = ""
        # From the last report.
        self._is_failing = False

    def update_state(self, state: State, picker: Picker) -> None:
        entry = self.entry
        cluster = entry.cluster_name
        if state is State.TRANSIENT_FAILURE:
            is_empty = _lacks_endpoints(entry)
            note = entry.resolution_note
            picker = NotingPicker(picker, cluster, note, self.node_id, is_empty=is_empty)
            # Once: each attempt may fail for another reason, and there may be many endpoints.
            if not self._is_failing:
                LOGGER.info("%s", picker.status.details)
        elif self._is_failing and state is State.READY:
            LOGGER.info("%s: READY again", name_cluster(cluster))
        self._is_failing = state is State.TRANSIENT_FAILURE
        if self.context.metrics.active and not _is_aggregate(entry):
            picker = ServicePicker(picker, cluster)
        self._parent.update_state(state, picker)


class CdsFactory:
    """What the registry knows of cds_experimental."""

    name: Final = NAME

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> CdsConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return CdsPolicy(helper)
