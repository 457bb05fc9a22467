"""The xds_cluster_manager policy: the common rules of policies, and config errors."""

import pytest

from proxyless.assembly import Registries
from proxyless.base import EMPTY_ATTRIBUTES, ValidationErrors
from proxyless.lb import PickInfo
from proxyless.testing import Traits, check_policy
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.lb.cluster_manager import ClusterManagerFactory

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
