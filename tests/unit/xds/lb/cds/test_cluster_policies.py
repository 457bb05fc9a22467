"""Configs of a cluster's policies equal those parsed from the same policies in JSON."""

import pytest

from proxyless.assembly import default_policies
from proxyless.base import ValidationErrors
from proxyless.lb import PolicyRegistry
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.xds.lb.cds.cluster_policies import AggregatePolicies, LeafPolicies
from proxyless.xds.resources import LbConfig, OutlierDetection

POLICIES = default_policies()
WRR_LOCALITY: tuple[dict[str, object], ...] = (
    {"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}},
)
OUTLIERS = {
    "interval": "7s",
    "baseEjectionTime": "400s",
    "failurePercentageEjection": {"threshold": 50},
}


def parse(json: dict[str, object]) -> PolicyConfig | None:
    errors = ValidationErrors()
    config = parse_policy_list([json], errors, POLICIES)
    assert errors.ok, str(errors)
    return config


def leaf(outlier_detection: dict[str, object] | None = None) -> LeafPolicies:
    rules = None if outlier_detection is None else OutlierDetection(outlier_detection)
    return LeafPolicies(
        "a", ("p0", "p1"), LbConfig.of(WRR_LOCALITY), rules, ignore_reresolution_requests=True
    )


@pytest.mark.parametrize("outliers", [None, {}, OUTLIERS])
def test_leaf_policies_equal_those_parsed_from_json(outliers: dict[str, object] | None) -> None:
    child = {"ignoreReresolutionRequests": True, "config": list(WRR_LOCALITY)}
    priority = {"children": {"p0": child, "p1": child}, "priorities": ["p0", "p1"]}
    override_host = {"clusterName": "a", "childPolicy": [{"priority_experimental": priority}]}
    cluster_impl = {
        "cluster": "a",
        "childPolicy": [{"xds_override_host_experimental": override_host}],
    }
    outlier = {
        **(outliers or {}),
        "childPolicy": [{"xds_cluster_impl_experimental": cluster_impl}],
    }
    errors = ValidationErrors()
    assert leaf(outliers).configure(errors, POLICIES) == parse(
        {"outlier_detection_experimental": outlier}
    )
    assert errors.ok


def test_aggregate_policies_equal_those_parsed_from_json() -> None:
    children = {
        name: {"config": [{"cds_experimental": {"cluster": name}}], "innerPriorities": inner}
        for name, inner in (("b", 2), ("a", 1))
    }
    errors = ValidationErrors()
    found = AggregatePolicies((("b", 2), ("a", 1))).configure(errors, POLICIES)
    json = {"children": children, "priorities": ["b", "a"]}
    assert found == parse({"priority_experimental": json})
    assert errors.ok


def test_error_names_the_policy_when_it_is_not_registered() -> None:
    for policies, unknown in (
        (leaf(), "xds_wrr_locality_experimental"),
        (AggregatePolicies((("a", 1),)), "cds_experimental"),
    ):
        errors = ValidationErrors()
        assert policies.configure(errors, PolicyRegistry()) is None
        assert str(errors) == f"[error:No known policies in list: {unknown}]"


@pytest.mark.parametrize(
    "missing",
    [
        "priority_experimental",
        "xds_override_host_experimental",
        "xds_cluster_impl_experimental",
        "outlier_detection_experimental",
    ],
)
def test_leaf_is_rejected_when_one_of_its_policies_is_not_registered(missing: str) -> None:
    found = [POLICIES.find(name) for name in POLICIES.names if name != missing]
    errors = ValidationErrors()
    registry = PolicyRegistry(factory for factory in found if factory is not None)
    leaf().configure(errors, registry)
    assert str(errors) == f"[error:No known policies in list: {missing}]"


def test_invalid_outlier_detection_is_rejected() -> None:
    errors = ValidationErrors()
    leaf({"interval": 7}).configure(errors, POLICIES)
    assert "interval" in str(errors)
