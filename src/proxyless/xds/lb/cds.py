"""What is one cluster, as a tree of policies?

Specs: A74-51..64 (the cluster comes from the XdsConfig), A75-01..15 (the tree), A37.

A cluster of its own: outlier_detection > xds_cluster_impl > xds_override_host > priority > the
cluster's LB policy for each priority. An aggregate: priority > a cds for each leaf, in order. The
child is a config in JSON like any other, made anew only if something in it changed; the endpoints
go down beside it, each tagged with the children that it is for.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import OK, Key, State, Status, StatusCode, ValidationErrors, one_line
from proxyless.lb import QUEUE_PICKER, Drop, Fail, GracefulSwitch
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.pickers import FailPicker
from proxyless.lb.view import LbNode, wrap
from proxyless.xds.attributes import CLUSTER_SUBSCRIPTIONS, XDS_CONFIG
from proxyless.xds.config import ClusterConfig, ClusterError
from proxyless.xds.error_texts import name_cluster, with_node
from proxyless.xds.lb.child_config import parse_cluster_name, parse_flag
from proxyless.xds.lb.priorities import (
    ChildNumbers,
    EndpointMaker,
    assign_numbers,
    child_name,
)
from proxyless.xds.resources import AggregateCluster, EdsCluster, EndpointResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Attributes
    from proxyless.lb import Helper, Policy, PolicyRegistry, Update
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


@dataclass(frozen=True, slots=True)
class CdsConfig:
    """Which cluster, and whether no route names it."""

    cluster: str
    is_dynamic: bool = False


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> CdsConfig:
    is_dynamic = parse_flag(json, errors, "isDynamic", "is_dynamic")
    return CdsConfig(parse_cluster_name(json, errors), is_dynamic)


# ---------------------------------------------------------------------------------------------
# Decision: the child's config


def aggregate_child(leaves: tuple[ClusterConfig, ...]) -> dict[str, object]:
    """The policy of an aggregate: its leaves, the preferred one first (A75-01)."""
    children = {
        leaf.cluster_name: {
            "config": [{NAME: {"cluster": leaf.cluster_name}}],
            # A leaf may try all its priorities before the next leaf is used (A75-08).
            "innerPriorities": len(leaf.endpoints.priorities) or 1 if leaf.endpoints else 1,
        }
        for leaf in leaves
    }
    return {"priority_experimental": {"children": children, "priorities": list(children)}}


def leaf_child(
    entry: ClusterConfig, names: tuple[str, ...], lb_config: LbConfig
) -> dict[str, object]:
    """The policies of one cluster, top down (A75-03)."""
    cluster = entry.cluster
    child: dict[str, object] = {
        # "true for EDS priorities, false for DNS" (A37-04)
        "ignoreReresolutionRequests": isinstance(cluster.discovery, EdsCluster),
        "config": list(lb_config),
    }
    priority = {"children": dict.fromkeys(names, child), "priorities": list(names)}
    policy: dict[str, object] = {"priority_experimental": priority}
    for name, config in (
        ("xds_override_host_experimental", {"clusterName": entry.cluster_name}),
        ("xds_cluster_impl_experimental", {"cluster": entry.cluster_name}),
    ):
        policy = {name: {**config, "childPolicy": [policy]}}
    outlier = cluster.outlier_detection.config if cluster.outlier_detection is not None else {}
    return {"outlier_detection_experimental": {**outlier, "childPolicy": [policy]}}


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
    """Adds to a failure whose it is, and what is known about the endpoints (A74-39)."""

    __slots__ = ("_cluster", "_node_id", "_note", "_picker")

    def __init__(self, picker: Picker, cluster: str, note: str, node_id: str = "") -> None:
        self._picker: Final = picker
        self._cluster: Final = cluster
        self._note: Final = note
        self._node_id: Final = node_id

    def pick(self, info: PickInfo) -> PickResult:
        result = self._picker.pick(info)
        return Fail(self._with_note(result.status)) if isinstance(result, Fail) else result

    @property
    def status(self) -> Status:
        return self._with_note(self._picker.status)

    def _with_note(self, status: Status) -> Status:
        text = f"{name_cluster(self._cluster)}: {status.details}"
        if self._note not in text:
            text = f"{text} ({self._note})"
        return Status(status.code, with_node(text, self._node_id))


# ---------------------------------------------------------------------------------------------
# Policy


class Cds:
    """One cluster's policies. Driven by its parent and its child."""

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._is_backward_compatible = os.environ.get(BACKWARD_COMPAT, "").lower() == "true"
        # Present while the cluster is known.
        self._child: _Child | None = None
        # From the last update that was passed on.
        self._entry: ClusterConfig | None = None
        self._lb_config: LbConfig = ()
        self._numbers = ChildNumbers()
        self._endpoints = EndpointMaker()
        self._child_json: dict[str, object] | None = None
        self._child_config: PolicyConfig | None = None
        # Held from the first update that did not know a dynamic cluster (A74-54).
        self._subscription: ClusterSubscription | None = None
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
        result = xds_config.clusters.get(config.cluster) or xds_config.find(config.cluster)
        if result is None:
            return self._on_absent(config, update.attributes)
        if isinstance(result, ClusterError):
            return self._on_error(result)
        attributes = update.attributes.with_(_ABOVE, (*above, config.cluster))
        update = replace(update, attributes=attributes)
        entries = result if isinstance(result, tuple) else (result,)
        if isinstance(entries[0].cluster.discovery, AggregateCluster):
            return self._update_aggregate(update, entries)
        return self._update_leaf(update, entries[0])

    def exit_idle(self) -> None:
        if self._child is not None:
            self._child.policy.exit_idle()

    def reset_backoff(self) -> None:
        if self._child is not None:
            self._child.policy.reset_backoff()

    def close(self) -> None:
        self._drop_child()
        if self._subscription is not None:
            self._subscription.release()
            self._subscription = None

    def describe(self) -> LbNode:
        if self._child is None:
            # The report said why; a cluster that is not there yet has made none.
            detail = "" if self._subscription is None else "waits for the cluster's resource"
            return LbNode(detail=detail)
        child = self._child.policy.describe()
        # While all is well, a note is about nothing.
        note = "" if child.state == State.READY.name else self._child.note
        return wrap(child, note)

    # Clusters that are not there

    def _on_absent(self, config: CdsConfig, attributes: Attributes) -> Status:
        subscriptions = attributes.get(CLUSTER_SUBSCRIPTIONS)
        if not config.is_dynamic or subscriptions is None:
            return self._fail_with(config.cluster, "is not in the xDS config")
        if self._subscription is None:
            self._subscription = subscriptions.subscribe(config.cluster)
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
        self._entry = self._child_json = self._child_config = None
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
            aggregate_child(entries[1:]), replace(update, attributes=attributes), entries[0]
        )

    def _update_leaf(self, update: Update, entry: ClusterConfig) -> Status:
        lb_config = update.attributes.get(AGGREGATE_LB_CONFIG) or entry.cluster.lb_config
        if entry is self._entry and lb_config == self._lb_config:
            return OK
        self._entry, self._lb_config = entry, lb_config
        resource = entry.endpoints or EndpointResource(name=entry.cluster_name)
        self._numbers = assign_numbers(self._numbers, resource.priorities or _EMPTY_PRIORITY)
        names = tuple(child_name(entry.cluster_name, each) for each in self._numbers.numbers)
        endpoints = self._endpoints.make(resource, names[: len(resource.priorities)])
        whole = replace(update, endpoints=endpoints, resolution_note=entry.resolution_note)
        return self._update_child(leaf_child(entry, names, lb_config), whole, entry)

    def _update_child(
        self, json: dict[str, object], update: Update, entry: ClusterConfig
    ) -> Status:
        if json != self._child_json:
            errors = ValidationErrors()
            config = parse_policy_list([json], errors, self._helper.context.registry)
            if config is None or not errors.ok:
                return self._fail_with(entry.cluster_name, f"load balancing config: {errors}")
            self._child_json, self._child_config = json, config
            self._trace(update, entry)
        if self._child is None:
            self._child = _Child(self._helper)
        self._logged = ""
        self._child.cluster, self._child.note = entry.cluster_name, entry.resolution_note
        self._child.node_id = self._node_id
        try:
            return self._child.policy.update(update.with_config(self._child_config))
        except Exception as error:
            # A policy may be an application's own; its bug is the trouble of this cluster only.
            LOGGER.exception("%s: load balancing policy raised", name_cluster(entry.cluster_name))
            text = one_line(f"load balancing policy raised {type(error).__name__}: {error}")
            return self._fail_with(entry.cluster_name, text)


class _Child(ForwardingHelper):
    """The policies below, and their helper."""

    __slots__ = ("_is_failing", "cluster", "node_id", "note", "policy")

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.policy: Final = GracefulSwitch(self)
        # From the last update: whose policies they are, and where the endpoints came from.
        self.cluster = ""
        self.note = ""
        self.node_id = ""
        # From the last report.
        self._is_failing = False

    def update_state(self, state: State, picker: Picker) -> None:
        if state is State.TRANSIENT_FAILURE:
            picker = NotingPicker(picker, self.cluster, self.note, self.node_id)
            # Once: each attempt may fail for another reason, and there may be many endpoints.
            if not self._is_failing:
                LOGGER.info("%s", picker.status.details)
        elif self._is_failing and state is State.READY:
            LOGGER.info("%s: READY again", name_cluster(self.cluster))
        self._is_failing = state is State.TRANSIENT_FAILURE
        super().update_state(state, picker)


class CdsFactory:
    """What the registry knows of cds_experimental."""

    name: Final = NAME

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> CdsConfig:
        return parse_config(json, errors)

    def create(self, helper: Helper) -> Policy:
        return Cds(helper)
