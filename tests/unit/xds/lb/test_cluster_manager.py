"""The xds_cluster_manager policy: the common rules of policies, and config errors."""

from collections.abc import Mapping

import pytest

from proxyless.assembly import Registries
from proxyless.base import EMPTY_ATTRIBUTES, OK, Status, StatusCode, ValidationErrors
from proxyless.lb import QUEUE, Helper, PickInfo, PolicyRegistry, Update
from proxyless.runtime.work_queue import UNITS_PER_TURN
from proxyless.testing import Traits, check_policy
from proxyless.xds.config import ClusterConfig, ClusterError, XdsConfig
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.config.xds_config import ClusterResult
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cds.policy import CdsConfig, CdsFactory
from proxyless.xds.lb.cluster_manager import (
    HEAD_START_S,
    UPDATE_UNITS,
    ClusterManagerFactory,
)
from tests.worlds.policies import CONNECTING, SlicedWorld
from tests.worlds.xds_resources import aggregate, cluster, endpoints, listener, route_config

RPC = PickInfo("/s/m", (), EMPTY_ATTRIBUTES.with_(CLUSTER, "a"))
CHILD: dict[str, object] = {"childPolicy": [{"round_robin": {}}]}


def test_policy_obeys_the_common_rules() -> None:
    check_policy(
        ClusterManagerFactory(),
        config={"children": {"a": CHILD}},
        traits=Traits(refuses_in_part=True, rpc=RPC),
        seeds=range(3),
    )


@pytest.mark.parametrize(
    ("json", "text"),
    [
        ({"children": []}, "field:children error:is a list, wanted an object"),
        ({"children": {"a": 1}}, 'field:children["a"] error:is 1, wanted an object'),
        ({"children": {"a": {}}}, 'field:children["a"].childPolicy error:is missing'),
        ({"cdsConfig": {}}, "field:cdsConfig error:is an object, wanted a list"),
        ({"cds_config": [1]}, "field:cdsConfig[0] error:is 1, wanted an object"),
    ],
)
def test_config_error_names_the_field(json: dict[str, object], text: str) -> None:
    errors = ValidationErrors()
    ClusterManagerFactory().parse_config(json, errors, Registries().policies)
    assert text in str(errors)


def test_config_may_have_both_forms_of_children() -> None:
    errors = ValidationErrors()
    json = {"children": {"a": CHILD}, "cdsConfig": [{"cluster": "b"}]}
    config = ClusterManagerFactory().parse_config(json, errors, Registries().policies)
    assert errors.ok
    assert list(config.children) == ["a", "b"]


@pytest.mark.parametrize("dynamic", [{}, {"isDynamic": True}, {"isDynamic": False}, {"x": 1}])
def test_children_of_the_resolver_are_parsed_as_by_the_general_parser(
    dynamic: dict[str, object],
) -> None:
    child = {"childPolicy": [{"cds_experimental": {"cluster": "c", **dynamic}}]}
    errors, policies = ValidationErrors(), Registries().policies
    plain = {"children": {"a": child}}
    # The second field keeps it from the parser for the resolver's children.
    general = {"children": {"a": child}, "cdsConfig": []}
    factory = ClusterManagerFactory()
    parsed = [factory.parse_config(json, errors, policies) for json in (plain, general)]
    assert errors.ok
    assert parsed[0].children["a"].config == parsed[1].children["a"].config


class RecordedPolicy:
    """Policy that records its updates, and never reports."""

    def __init__(self, updates: list[object]) -> None:
        self._updates = updates

    def update(self, update: Update) -> Status:
        self._updates.append(update.config)
        return OK

    def exit_idle(self) -> None: ...

    def reset_backoff(self) -> None: ...

    def close(self) -> None: ...


class RecordedFactory:
    """Factory of `RecordedPolicy`. The config is a name."""

    def __init__(self, name: str = "recorded") -> None:
        self.name = name
        self.updates: list[object] = []

    def create(self, helper: Helper) -> RecordedPolicy:
        return RecordedPolicy(self.updates)

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return json["name"]


class RecordedCdsFactory(RecordedFactory):
    """Factory of policies that record their updates in place of a cds policy."""

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> CdsConfig:
        return CdsFactory().parse_config(json, errors, registry)

    @property
    def clusters(self) -> list[str]:
        """The clusters of the updates since the last call."""
        found = [each.cluster for each in self.updates if isinstance(each, CdsConfig)]
        self.updates.clear()
        return found


class SlicedManager:
    """A cluster manager whose children record their updates, and whose work is done in slices."""

    def __init__(self, *names: str) -> None:
        self.recorded = RecordedFactory()
        self.world = SlicedWorld(ClusterManagerFactory(), others=(self.recorded,))
        self.update(*names)

    def update(self, *names: str) -> None:
        children = {name: {"childPolicy": [{"recorded": {"name": name}}]} for name in names}
        self.world.update(config={"children": children})

    def queue_rpc(self, name: str) -> None:
        attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, name)
        assert self.world.picker.pick(PickInfo("/s/m", attributes=attributes)) is QUEUE

    def updated_after(self, delay_s: float) -> list[object]:
        """The children that were updated since the last call, after so much time."""
        self.world.clock.advance(delay_s)
        found = list(self.recorded.updates)
        self.recorded.updates.clear()
        return found


def test_first_update_starts_with_the_clusters_that_rpcs_wait_for() -> None:
    manager = SlicedManager("a", "b", "c", "d")
    manager.queue_rpc("b")
    manager.queue_rpc("d")
    assert manager.updated_after(0) == ["d", "b"]
    assert manager.updated_after(HEAD_START_S / 2) == []
    # A new RPC does not wait for the others, nor do these wait longer.
    manager.queue_rpc("c")
    assert manager.updated_after(0) == ["c"]
    assert manager.updated_after(HEAD_START_S / 2) == ["a"]


def test_first_update_has_no_pause_if_no_rpc_waits() -> None:
    manager = SlicedManager("a", "b")
    assert manager.updated_after(0) == ["a", "b"]


def test_clusters_that_are_updated_in_one_turn_are_reported_once() -> None:
    manager = SlicedManager("a", "b", "c", "d")
    for name in ("a", "b", "c"):
        manager.queue_rpc(name)
    manager.world.expect_reports(CONNECTING)
    assert manager.updated_after(0) == ["c", "b", "a"]
    manager.world.expect_reports(CONNECTING)


def test_policy_can_be_closed_by_a_report_while_clusters_wait() -> None:
    names = [f"c{number}" for number in range(4 * UNITS_PER_TURN // UPDATE_UNITS)]
    manager = SlicedManager(*names)
    manager.world.helper.react = lambda _: manager.world.policy.close()
    assert len(manager.updated_after(0)) < len(names)
    assert manager.updated_after(HEAD_START_S) == []
    manager.world.expect_closed()


def test_first_update_of_one_cluster_is_made_at_once() -> None:
    assert SlicedManager("a").recorded.updates == ["a"]


def test_clusters_that_are_held_back_are_updated_by_the_next_update() -> None:
    manager = SlicedManager("a", "b", "c")
    manager.queue_rpc("a")
    assert manager.updated_after(0) == ["a"]
    manager.update("a", "c")
    assert manager.updated_after(0) == ["c", "a"]
    assert manager.updated_after(HEAD_START_S) == []


def test_cluster_that_an_rpc_waits_for_is_updated_next() -> None:
    at_once = UNITS_PER_TURN // UPDATE_UNITS
    names = [f"c{number}" for number in range(at_once + 2)]
    manager = SlicedManager("first")
    manager.updated_after(0)
    manager.update(*names)
    assert manager.recorded.updates == names[:at_once]
    other, last = names[at_once:]
    manager.queue_rpc(last)
    assert manager.updated_after(0)[at_once:] == [last, other]


class CdsWorld:
    """A cluster manager with recorded cds policies."""

    def __init__(self, children: Mapping[str, Mapping[str, object]]) -> None:
        self.recorded = RecordedCdsFactory(CdsFactory.name)
        self._world = SlicedWorld(ClusterManagerFactory(), others=(self.recorded,))
        self._config = {
            "children": {
                name: {"childPolicy": [{CdsFactory.name: cds}]} for name, cds in children.items()
            }
        }

    def update(self, clusters: Mapping[str, ClusterResult], *names: str) -> list[str]:
        """Update with an XdsConfig of these clusters; returns the clusters that were updated."""
        self.start_update(clusters, *names)
        self._world.clock.advance(0)
        return self.recorded.clusters

    def start_update(self, clusters: Mapping[str, ClusterResult], *names: str) -> None:
        """As `update`, without the next turns of the loop."""
        children = self._config["children"]
        listed = {"children": {name: children[name] for name in names or children}}
        routes = route_config(*clusters)
        xds_config = XdsConfig(listener(), routes, routes.virtual_hosts[0], dict(clusters))
        attributes = EMPTY_ATTRIBUTES.with_(XDS_CONFIG, xds_config)
        self._world.update(config=listed, attributes=attributes)


def leaf(name: str, address: str = "10.0.0.1:80") -> tuple[ClusterConfig, ...]:
    return (ClusterConfig(name, cluster(name), endpoints(name, address)),)


def test_only_changed_clusters_are_updated() -> None:
    world = CdsWorld({"cluster:a": {"cluster": "a"}, "cluster:b": {"cluster": "b"}})
    before = {"a": leaf("a"), "b": leaf("b")}
    assert world.update(before) == ["a", "b"]
    assert world.update(before) == []
    assert world.update({**before, "b": leaf("b", "10.0.0.2:80")}) == ["b"]


def test_cluster_in_error_and_after_it_is_updated() -> None:
    world = CdsWorld({"cluster:a": {"cluster": "a"}})
    entry, error = leaf("a"), ClusterError(Status(StatusCode.UNAVAILABLE, "gone"))
    for result in (entry, error, error, entry):
        assert world.update({"a": result}) == ["a"]
    assert world.update({"a": entry}) == []


def test_aggregates_and_dynamic_clusters_are_always_updated() -> None:
    world = CdsWorld(
        {"cluster:a": {"cluster": "a"}, "mirror:b": {"cluster": "b", "isDynamic": True}}
    )
    above = ClusterConfig("a", aggregate("a", "c"))
    clusters = {"a": (above, *leaf("c")), "b": leaf("b")}
    for _ in range(2):
        assert world.update(clusters) == ["a", "b"]


def test_cluster_that_was_removed_is_updated_when_it_is_added_again() -> None:
    world = CdsWorld({"cluster:a": {"cluster": "a"}, "cluster:b": {"cluster": "b"}})
    clusters = {"a": leaf("a"), "b": leaf("b")}
    world.update(clusters)
    assert world.update(clusters, "cluster:a") == []
    assert world.update(clusters) == ["b"]


def test_clusters_that_wait_for_an_update_may_be_removed_while_the_others_do_not_change() -> None:
    at_once = UNITS_PER_TURN // UPDATE_UNITS
    clusters = {f"c{number}": leaf(f"c{number}") for number in range(at_once + 2)}
    world = CdsWorld({f"cluster:{name}": {"cluster": name} for name in clusters})
    world.update(clusters, "cluster:c0")
    world.start_update(clusters)
    removed = f"c{at_once + 1}"
    assert removed not in world.recorded.clusters
    kept = [f"cluster:{name}" for name in clusters if name != removed]
    assert world.update(clusters, *kept) == []
    assert world.update(clusters) == [removed]
