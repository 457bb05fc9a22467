"""The xds_cluster_manager policy: one child for each cluster that RPCs may be routed to.

Specs: A31 (xds_cluster_manager), A28 (state, retention); D21 (two names, two forms of config), D22.

The ConfigSelector chooses the child of an RPC; siblings never influence a pick. RPCs with a name
that no child has are dropped: selector and policy disagree, which must not happen.

Children are updated in slices (`runtime.work_queue`). RPCs of a child that waits for its part of
the last update are queued, so that each RPC uses one config only; such a child is updated next. The
first update starts with the children that RPCs wait for, and continues with the others
`HEAD_START_S` later, so that the first RPC does not wait for clusters that it does not use. A
cluster that has not changed is not updated: most updates change one cluster of many.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from proxyless.base import OK, State, Status, StatusCode, quote
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import OBJECT, JsonObject
from proxyless.lb import QUEUE, QUEUE_PICKER, Drop, PolicyConfig
from proxyless.lb.aggregate import IDLE_IS_IDLE, StateCounts, aggregate, sticky_state
from proxyless.lb.api import Picker, PickInfo, PickResult
from proxyless.lb.config import parse_child_policy, parse_policy_list
from proxyless.lb.description import LbNode, as_child, join_notes
from proxyless.lb.reentrancy import Hold
from proxyless.lb.retained_child import NOT_LISTED, RetainedChild, join_rejections
from proxyless.runtime import IDLE_TIMER, ActionsJob, Soon
from proxyless.runtime.work_queue import UNITS_PER_TURN
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.error_texts import with_node
from proxyless.xds.filters.attributes import CLUSTER, MIRROR_PREFIX
from proxyless.xds.lb.cds.policy import CdsConfig, CdsFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.lb import Helper, PolicyRegistry, Update
    from proxyless.lb.api import Endpoints
    from proxyless.runtime import Timer
    from proxyless.xds.config.xds_config import ClusterConfig, XdsConfig

NAME: Final = "xds_cluster_manager_experimental"

# Units of `runtime.work_queue`: an update of a child, without the work of its policies.
UPDATE_UNITS: Final = 20
# The same, to close a child with its policies.
CLOSE_UNITS: Final = 150
# Time in which children that RPCs wait for connect, before the others of the first update follow.
HEAD_START_S: Final = 0.02
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

    __slots__ = ("_children", "_node_id", "_on_queued", "_status")

    def __init__(
        self,
        children: Mapping[str, ClusterChild],
        on_queued: Callable[[str], None],
        status: Status,
        node_id: str = "",
    ) -> None:
        self._children: Final = children
        self._on_queued: Final = on_queued
        self._status: Final = status
        self._node_id: Final = node_id

    def pick(self, info: PickInfo) -> PickResult:
        name = info.attributes.get(CLUSTER)
        child = self._children.get(name) if name is not None else None
        if child is None or not child.is_pickable:
            if child is None or not child.in_config:
                return _drop_unknown(name, self._node_id)
            self._on_queued(child.name)
            return QUEUE
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
        # The last config; and all children: those of the config, and deactivated ones.
        self._config: ClusterManagerConfig | None = None
        self._children: dict[str, ClusterChild] = {}
        # States of the children of the config.
        self._counts = StateCounts()
        # Active during calls to children.
        self._hold: Final = Hold()
        self._report_soon: Final = Soon(helper.context.clock, self._report)
        # The last update; the children that have not got it yet, and whether an RPC waits for each,
        # which puts it in front; and the rejections by the others.
        self._update: Update | None = None
        self._waiting: Final[OrderedDict[str, bool]] = OrderedDict()
        self._rejections: list[str] = []
        # Pending while the children that no RPC waits for are held back, at most until the next
        # update; and whether they may still be held back.
        self._head_start: Timer = IDLE_TIMER
        self._may_hold_back = False
        self._update_soon: Final = Soon(helper.context.clock, self._update_children)
        # From the last update, for error texts.
        self._node_id = ""

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, ClusterManagerConfig), "the config has this policy's type"
        xds_config = update.attributes.get(XDS_CONFIG)
        self._node_id = "" if xds_config is None else xds_config.node_id
        if config is not self._config:
            self._config = config
            self._set_children(config)
        # Children that wait for the previous update come first, so that frequent updates cannot
        # starve the last ones.
        for name in [name for name in self._waiting if name not in config.children]:
            del self._waiting[name]
        for name, policy in config.children.items():
            if not self._children[name].is_current(policy, xds_config):
                self._waiting.setdefault(name, False)
        if self._head_start is not IDLE_TIMER:
            self._head_start.cancel()
        self._may_hold_back = self._update is None and len(self._waiting) > 1
        if self._may_hold_back:
            # RPCs are routed when this update has returned: children are updated in the next turn.
            self._helper.context.work.charge(UNITS_PER_TURN)
        self._update = update
        with self._hold:
            if self._waiting:
                self._helper.context.work.run(self, UPDATE_UNITS)
            for name in self._waiting:
                self._children[name].is_pickable = False
        self._report()
        rejections, self._rejections = self._rejections, []
        return join_rejections(rejections) if rejections else OK

    def _set_children(self, config: ClusterManagerConfig) -> None:
        # Create all first: the picker must find every cluster when `update` returns (A31-15).
        for name in config.children:
            self._ensure_child(name)
        for name, child in self._children.items():
            if name not in config.children:
                self._set_in_config(child, in_config=False)
                child.unlist()

    def step(self) -> bool:
        """Update the next child. Called by the work queue, inside `update` or later."""
        if not self._waiting:
            # The last update has removed the children that waited.
            return False
        if not self._hold.active:
            with self._hold:
                has_next = self.step()
            # Once for all children of this turn: all RPCs that wait are picked after each report.
            self._report_soon.request()
            if self._rejections:
                # `update` has returned, and can no longer report the rejections.
                self._rejections = []
                self._helper.request_reresolution()
            return has_next
        name, is_awaited = self._waiting.popitem(last=False)
        update, child = self._update, self._children[name]
        assert update is not None, "children wait for an update"
        assert isinstance(update.config, ClusterManagerConfig), "the config has this policy's type"
        child.is_pickable = True
        policy = update.config.children[child.name]
        self._rejections += child.update_policy(update, update.endpoints, policy)
        if is_awaited and self._may_hold_back:
            self._may_hold_back = False
            self._head_start = self._helper.context.clock.call_later(
                HEAD_START_S, self._update_children
            )
        return bool(self._waiting) and not self._is_next_held_back()

    def _is_next_held_back(self) -> bool:
        return self._head_start.pending and not next(iter(self._waiting.values()))

    def _update_children(self) -> None:
        if self._waiting:
            self._helper.context.work.run(self, UPDATE_UNITS)

    def on_queued(self, name: str) -> None:
        """Update the child next, because an RPC waits for it. Called by pickers."""
        if name in self._waiting:
            self._waiting[name] = True
            self._waiting.move_to_end(name, last=False)
            if self._head_start.pending:
                self._update_soon.request()

    def exit_idle(self) -> None:
        with self._hold:
            for child in self._children.values():
                if child.in_config:
                    child.policy.exit_idle()
        self._report()

    def reset_backoff(self) -> None:
        with self._hold:
            for child in self._children.values():
                child.policy.reset_backoff()
        self._report()

    def close(self) -> None:
        self._helper.context.work.cancel(self)
        self._head_start.cancel()
        self._update_soon.cancel()
        self._report_soon.cancel()
        children, self._children = self._children, {}
        if children:
            job = ActionsJob([child.close for child in children.values()])
            self._helper.context.work.run(job, CLOSE_UNITS)

    def describe(self) -> LbNode:
        children = tuple(child.describe() for child in self._children.values())
        state = aggregate(self._counts, IDLE_IS_IDLE)
        return LbNode(state=state.name, children=children)

    def describe_child(self, name: str) -> LbNode | None:
        """Describe one cluster only: there may be a thousand."""
        child = self._children.get(name)
        return None if child is None else child.describe()

    def _ensure_child(self, name: str) -> None:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = ClusterChild(self._helper, name, self)
        else:
            child.reactivate()
        if not child.in_config:
            self._set_in_config(child, in_config=True)

    def _set_in_config(self, child: ClusterChild, *, in_config: bool) -> None:
        """Only children of the config are picked from and counted (A28-08), and no mirrors."""
        if child.in_config is not in_config:
            child.in_config = child.is_pickable = in_config
            if child.is_mirror:
                return
            if in_config:
                self._counts.add(child.state)
            else:
                self._counts.remove(child.state)

    # Called by children.

    def on_report(self, child: ClusterChild, before: State) -> None:
        # After `close`, children may still report until it is their turn.
        if child.in_config and child.name in self._children:
            if not child.is_mirror:
                self._counts.move(before, child.state)
            if not self._hold.active:
                self._report()

    def destroy(self, name: str) -> None:
        child = self._children.pop(name, None)
        # None if this policy is closed, and the child is about to be.
        if child is not None:
            child.close()

    # Reports.

    def _report(self) -> None:
        state = aggregate(self._counts, IDLE_IS_IDLE)
        status = self._failure() if state is State.TRANSIENT_FAILURE else OK
        picker = ClusterManagerPicker(self._children, self.on_queued, status, self._node_id)
        self._helper.update_state(state, picker)

    def _failure(self) -> Status:
        children = self._children.values()
        failures = (each.failure for each in children if each.in_config and not each.is_mirror)
        return next(failures, _NO_CHILDREN)


class ClusterChild(RetainedChild):
    """One cluster's policy, and its last report."""

    trace_name: ClassVar[str] = "xds_cluster_manager.child"

    __slots__ = (
        "_last_update",
        "_owner",
        "failure",
        "in_config",
        "is_mirror",
        "is_pickable",
        "picker",
        "state",
    )

    def __init__(self, helper: Helper, name: str, owner: ClusterManagerPolicy) -> None:
        super().__init__(helper, name, owner.destroy)
        self._owner: Final = owner
        # It gets copies of RPCs only, so the state of the channel does not depend on it.
        self.is_mirror: Final = name.startswith(MIRROR_PREFIX)
        # From the last report. RPCs are queued until a new child reports (A31-27).
        self.state = State.CONNECTING
        self.picker: Picker = QUEUE_PICKER
        # From the last TRANSIENT_FAILURE: a child that counts as failing has one.
        self.failure = OK
        # Whether the last config has the child, and whether the child has got its part of it.
        self.in_config = False
        self.is_pickable = False
        # The policy and the cluster of the last update; None if the next one must not be left out.
        self._last_update: tuple[PolicyConfig, tuple[ClusterConfig, ...]] | None = None

    def is_current(self, policy: PolicyConfig, config: XdsConfig | None) -> bool:
        """Whether an update would change nothing: policy and cluster are those of the last one.

        Clusters compare by identity: the dependency manager reuses the entry of an unchanged one.
        """
        last = self._last_update
        if last is None or config is None or (policy is not last[0] and policy != last[0]):
            return False
        return config.clusters.get(last[1][0].cluster_name) is last[1]

    def update_policy(
        self, whole: Update, endpoints: Endpoints, config: PolicyConfig
    ) -> Sequence[str]:
        rejections = super().update_policy(whole, endpoints, config)
        self._last_update = None if rejections else _leaf_update(whole, config)
        return rejections

    def unlist(self) -> None:
        self._last_update = None
        super().unlist()

    def describe(self) -> LbNode:
        note = join_notes("" if self.in_config else NOT_LISTED, self.retention_note)
        own = self.policy.describe()
        node = as_child(
            own,
            self.name,
            state=self.state,
            failure=self.failure,
            note=note,
            in_use=self.in_config,
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


def _leaf_update(
    update: Update, policy: PolicyConfig
) -> tuple[PolicyConfig, tuple[ClusterConfig, ...]] | None:
    """The policy and the cluster of an update; None if its child may depend on anything else.

    A cds policy depends on the entry of its cluster only; one of an aggregate on other clusters,
    too, and a dynamic one has to subscribe. The cluster's LB policy may depend on other clusters.
    """
    config, xds_config = policy.config, update.attributes.get(XDS_CONFIG)
    if not isinstance(config, CdsConfig) or config.is_dynamic or xds_config is None:
        return None
    entries = xds_config.clusters.get(config.cluster)
    if not isinstance(entries, tuple) or len(entries) > 1:
        return None
    return None if entries[0].cluster.lb_config.reads_config else (policy, entries)


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
        plain = _parse_plain_children(json, registry)
        if plain is not None:
            return ClusterManagerConfig(plain)
        for name, child in fields.entries("children"):
            children[name] = parse_child_policy(child, registry)
        for entry in fields.elements("cdsConfig", OBJECT):
            name = JsonObject(entry, errors).need_text("cluster")
            children[name] = parse_policy_list([{"cds_experimental": entry}], errors, registry)
        return ClusterManagerConfig(
            {name: policy for name, policy in children.items() if policy is not None}
        )


def _parse_plain_children(
    json: Mapping[str, object], registry: PolicyRegistry
) -> dict[str, PolicyConfig] | None:
    """The same result as the general parser, for the children that the resolver makes.

    Returns None if one of them is different. There may be thousands, and this takes a tenth of the
    time.
    """
    children = json.get("children")
    factory = registry.find(CdsFactory.name)
    if len(json) > 1 or not isinstance(children, dict) or type(factory) is not CdsFactory:
        return None
    parsed: dict[str, PolicyConfig] = {}
    for name, child in children.items():
        config = _plain_config(child)
        if config is None:
            return None
        parsed[name] = PolicyConfig(factory, config)
    return parsed


def _plain_config(child: object) -> CdsConfig | None:
    """The config of a child whose only field is a cds policy, dynamic or not."""
    match child:
        case {"childPolicy": [{CdsFactory.name: {"cluster": str(cluster)} as config} as policy]}:
            assert isinstance(child, dict), "a mapping pattern matched"
            is_dynamic = config.get("isDynamic") is True
            is_plain = len(child) == len(policy) == len(config) - is_dynamic == 1
            is_valid = is_plain and cluster and cluster.isascii()
            return CdsConfig(cluster, is_dynamic) if is_valid else None
        case _:
            return None


class A31ClusterManagerFactory(ClusterManagerFactory):
    """The same policy under the name that A31 gives it (D21)."""

    name = A31_NAME
