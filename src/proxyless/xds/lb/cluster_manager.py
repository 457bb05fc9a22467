"""The xds_cluster_manager policy: one child for each cluster that RPCs may be routed to.

Specs: A31 (xds_cluster_manager), A28 (state, retention); D21 (two names, two forms of config), D22.

The ConfigSelector chooses the child of an RPC; siblings never influence a pick. RPCs with a name
that no child has are dropped: selector and policy disagree, which must not happen.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from proxyless.base import OK, State, Status, StatusCode, quote
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import OBJECT, JsonObject
from proxyless.lb import QUEUE_PICKER, Drop, PolicyConfig
from proxyless.lb.aggregate import IDLE_IS_IDLE, StateCounts, aggregate, sticky_state
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.config import parse_child_policy, parse_policy_list
from proxyless.lb.description import LbNode, as_child, join_notes
from proxyless.lb.reentrancy import Hold
from proxyless.lb.retained_child import NOT_LISTED, RetainedChild, join_rejections
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.error_texts import with_node
from proxyless.xds.filters.attributes import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import ValidationErrors
    from proxyless.lb import Helper, PolicyRegistry, Update

NAME: Final = "xds_cluster_manager_experimental"
A31_NAME: Final = "xds_cluster_manager"

_NO_CHILDREN: Final = Status(StatusCode.UNAVAILABLE, "xds_cluster_manager has no children")


@frozen
class ClusterManagerConfig:
    """The children by name."""

    children: Mapping[str, PolicyConfig] = field(default_factory=dict)


class ClusterManagerPicker(Picker):
    """Picks with the picker of the RPC's child.

    Not a snapshot: it reads the policy's map of children, which changes. Picks run on the policy's
    loop, and copying the map for each report would be quadratic in the number of clusters.
    """

    __slots__ = ("_children", "_node_id", "_status")

    def __init__(
        self, children: Mapping[str, ClusterChild], status: Status, node_id: str = ""
    ) -> None:
        self._children: Final = children
        self._status: Final = status
        self._node_id: Final = node_id

    def pick(self, info: PickInfo) -> PickResult:
        name = info.attributes.get(CLUSTER)
        child = self._children.get(name) if name is not None else None
        if child is None or not child.is_pickable:
            return _drop_unknown(name, self._node_id)
        return child.picker.pick(info)

    @property
    def status(self) -> Status:
        return self._status


def _drop_unknown(name: str | None, node_id: str) -> Drop:
    """Drop the RPC, even if it is wait-for-ready (A31-28, A31-29)."""
    what = "no cluster was chosen" if name is None else f"unknown cluster {quote(name)}"
    return Drop(Status(StatusCode.INTERNAL, with_node(f"xds_cluster_manager: {what}", node_id)))


class ClusterManagerPolicy:
    """Owns a child for each cluster."""

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # All children: those of the config, and deactivated ones.
        self._children: dict[str, ClusterChild] = {}
        # States of the children of the config.
        self._counts = StateCounts()
        # Active during calls to children.
        self._hold: Final = Hold(self._report)
        # From the last update, for error texts.
        self._node_id = ""

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, ClusterManagerConfig), "the config has this policy's type"
        xds_config = update.attributes.get(XDS_CONFIG)
        self._node_id = "" if xds_config is None else xds_config.node_id
        rejections: list[str] = []
        # Create all first: the picker must find every cluster when this returns (A31-15).
        for name in config.children:
            self._ensure_child(name)
        for name, child in self._children.items():
            if name not in config.children:
                self._set_pickable(child, is_pickable=False)
                child.unlist()
        with self._hold:
            for name, policy in config.children.items():
                child = self._children[name]
                rejections += child.update_policy(update, update.endpoints, policy)
        return join_rejections(rejections) if rejections else OK

    def exit_idle(self) -> None:
        with self._hold:
            for child in self._children.values():
                if child.is_pickable:
                    child.policy.exit_idle()

    def reset_backoff(self) -> None:
        with self._hold:
            for child in self._children.values():
                child.policy.reset_backoff()

    def close(self) -> None:
        children, self._children = self._children, {}
        for child in children.values():
            child.close()

    def describe(self) -> LbNode:
        children = tuple(child.describe() for child in self._children.values())
        state = aggregate(self._counts, IDLE_IS_IDLE)
        return LbNode(state=state.name, children=children)

    def describe_child(self, name: str) -> LbNode | None:
        """One cluster only: there may be a thousand."""
        child = self._children.get(name)
        return None if child is None else child.describe()

    def _ensure_child(self, name: str) -> None:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = ClusterChild(self._helper, name, self)
        else:
            child.reactivate()
        self._set_pickable(child, is_pickable=True)

    def _set_pickable(self, child: ClusterChild, *, is_pickable: bool) -> None:
        """Only children of the config are picked from and counted (A28-08)."""
        if child.is_pickable is not is_pickable:
            child.is_pickable = is_pickable
            if is_pickable:
                self._counts.add(child.state)
            else:
                self._counts.remove(child.state)

    # Called by children.

    def on_report(self, child: ClusterChild, before: State) -> None:
        if child.is_pickable:
            self._counts.move(before, child.state)
            if not self._hold.active:
                self._report()

    def destroy(self, name: str) -> None:
        self._children.pop(name).close()

    # Reports.

    def _report(self) -> None:
        state = aggregate(self._counts, IDLE_IS_IDLE)
        picker = ClusterManagerPicker(self._children, self._status(state), self._node_id)
        self._helper.update_state(state, picker)

    def _status(self, state: State) -> Status:
        if state is not State.TRANSIENT_FAILURE:
            return QUEUE_PICKER.status
        failures = (child.failure for child in self._children.values() if child.is_pickable)
        return next(failures, _NO_CHILDREN)


class ClusterChild(RetainedChild):
    """One cluster's policy, and its last report."""

    trace_name: ClassVar[str] = "xds_cluster_manager.child"

    __slots__ = ("_owner", "failure", "is_pickable", "picker", "state")

    def __init__(self, helper: Helper, name: str, owner: ClusterManagerPolicy) -> None:
        super().__init__(helper, name, owner.destroy)
        self._owner: Final = owner
        # From the last report. RPCs are queued until a new child reports (A31-27).
        self.state = State.CONNECTING
        self.picker: Picker = QUEUE_PICKER
        # From the last TRANSIENT_FAILURE: a child that counts as failing has one.
        self.failure = OK
        # True if the child is in the config.
        self.is_pickable = False

    def describe(self) -> LbNode:
        note = join_notes("" if self.is_pickable else NOT_LISTED, self.retention_note)
        own = self.policy.describe()
        node = as_child(
            own,
            self.name,
            state=self.state,
            failure=self.failure,
            note=note,
            in_use=self.is_pickable,
        )
        # A child that counts as failing may have a picker that queues RPCs.
        return replace(node, problem=own.problem) if self.picker.status.is_ok else node

    def update_state(self, state: State, picker: Picker) -> None:
        before = self.state
        # A child that fails counts as failing until it is READY (A28-07); its new picker is used.
        self.state = sticky_state(before, state)
        self.picker = picker
        if state is State.TRANSIENT_FAILURE:
            self.failure = picker.status
        self._owner.on_report(self, before)


class ClusterManagerFactory:
    """Factory of xds_cluster_manager_experimental."""

    name: str = NAME
    create = ClusterManagerPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> ClusterManagerConfig:
        """Accepts the map of today's gRPC and A31's list of cds configs (A31-23)."""
        fields = JsonObject(json, errors)
        children: dict[str, PolicyConfig | None] = {}
        for name, child in fields.entries("children"):
            children[name] = parse_child_policy(child, registry)
        for entry in fields.elements("cdsConfig", OBJECT):
            name = JsonObject(entry, errors).need_text("cluster")
            children[name] = parse_policy_list([{"cds_experimental": entry}], errors, registry)
        return ClusterManagerConfig(
            {name: policy for name, policy in children.items() if policy is not None}
        )


class A31ClusterManagerFactory(ClusterManagerFactory):
    """The same policy under the name that A31 gives it (D21)."""

    name = A31_NAME
