"""xds_cluster_impl: the rules of all policies, and picks that cost nothing anew."""

from proxyless.base import OK, ValidationErrors
from proxyless.lb import FailPicker, PolicyRegistry
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.runtime import seeded_random
from proxyless.testing import FakeHelper, check_policy
from proxyless.xds.lb.cluster_impl import ClusterImplFactory
from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS, CallCounters
from proxyless.xds.lb.cluster_impl.policy import CallLimit, DroppingPicker, drop_results
from proxyless.xds.resources import DropCategory
from tests.spec.lb_world import unavailable

CONFIG = {"cluster": "unit", "childPolicy": [{"round_robin": {}}]}


def test_the_policy_keeps_the_rules_of_all_policies() -> None:
    for child in ("round_robin", "pick_first"):
        config = {**CONFIG, "childPolicy": [{child: {}}]}
        check_policy(ClusterImplFactory(), config=config, seeds=range(3))
    assert ("unit", "") not in PROCESS_COUNTERS._by_key, "closed policies count nowhere"


def test_configs_need_a_cluster_and_a_child() -> None:
    errors = ValidationErrors()
    ClusterImplFactory().parse_config({}, errors, PolicyRegistry([PickFirstFactory()]))
    assert "field:cluster error:is missing or empty" in str(errors)
    assert "field:childPolicy error:is missing" in str(errors)


def picker_of(*drops: DropCategory) -> DroppingPicker:
    limit = CallLimit("unit", CallCounters().acquire(("unit", "")), 1)
    child = FailPicker(unavailable("down"))
    return DroppingPicker(child, drop_results("unit", drops), limit, None, seeded_random(1))


def test_category_that_drops_nothing_is_not_rolled() -> None:
    assert drop_results("unit", (DropCategory("none", 0),)) == ()


def test_who_drops_everything_has_no_failure_of_its_child() -> None:
    assert picker_of().status == unavailable("down")
    assert picker_of(DropCategory("half", 500_000)).status == unavailable("down")
    assert picker_of(DropCategory("all", 1_000_000)).status == OK


def test_closed_before_its_first_update_it_holds_nothing() -> None:
    helper = FakeHelper()
    ClusterImplFactory().create(helper).close()
    assert helper.reports == []
    assert helper.subchannels == []
