"""The xds_cluster_manager policy: the common rules of policies, and config errors."""

from collections.abc import Mapping

import pytest

from proxyless.assembly import Registries
from proxyless.base import EMPTY_ATTRIBUTES, OK, Status, ValidationErrors
from proxyless.lb import QUEUE, Helper, PickInfo, PolicyRegistry, Update
from proxyless.runtime.work_queue import UNITS_PER_TURN
from proxyless.testing import Traits, check_policy
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cluster_manager import UPDATE_UNITS, ClusterManagerFactory
from tests.worlds.policies import SlicedWorld

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

    name = "recorded"

    def __init__(self) -> None:
        self.updates: list[object] = []

    def create(self, helper: Helper) -> RecordedPolicy:
        return RecordedPolicy(self.updates)

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return json["name"]


def test_cluster_that_an_rpc_waits_for_is_updated_next() -> None:
    at_once = UNITS_PER_TURN // UPDATE_UNITS
    names = [f"c{number}" for number in range(at_once + 2)]
    recorded = RecordedFactory()
    world = SlicedWorld(ClusterManagerFactory(), others=(recorded,))
    children = {name: {"childPolicy": [{"recorded": {"name": name}}]} for name in names}
    world.update(config={"children": children})
    assert recorded.updates == names[:at_once]
    other, last = names[at_once:]
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, last)
    assert world.picker.pick(PickInfo("/s/m", attributes=attributes)) is QUEUE
    world.clock.advance(0)
    assert recorded.updates[at_once:] == [last, other]
