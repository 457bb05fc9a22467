"""The xds_cluster_impl policy: the common rules of policies, config errors, drops."""

from proxyless.base import OK, ValidationErrors
from proxyless.lb import FailPicker, PolicyRegistry
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.runtime import seeded_random
from proxyless.testing import FakeHelper, check_policy
from proxyless.xds.lb.cluster_impl import ClusterImplFactory
from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS, CallCounters
from proxyless.xds.lb.cluster_impl.policy import CallLimit, ClusterImplPicker, drop_results
from proxyless.xds.resources import DropCategory
from tests.worlds.policies import unavailable

CONFIG = {"cluster": "unit", "childPolicy": [{"round_robin": {}}]}


def test_policy_obeys_the_common_rules() -> None:
    for child in ("round_robin", "pick_first"):
        config = {**CONFIG, "childPolicy": [{child: {}}]}
        check_policy(ClusterImplFactory(), config=config, seeds=range(3))
    assert ("unit", "") not in PROCESS_COUNTERS._by_key, "closed policies hold no counter"


def test_config_is_rejected_without_cluster_and_child() -> None:
    errors = ValidationErrors()
    ClusterImplFactory().parse_config({}, errors, PolicyRegistry([PickFirstFactory()]))
    assert "field:cluster error:is missing or empty" in str(errors)
    assert "field:childPolicy error:is missing" in str(errors)


def picker_of(*drops: DropCategory) -> ClusterImplPicker:
    limit = CallLimit("unit", CallCounters().acquire(("unit", "")), 1)
    child = FailPicker(unavailable("down"))
    return ClusterImplPicker(child, drop_results("unit", drops), limit, None, seeded_random(1))


def test_category_without_drops_is_ignored() -> None:
    assert drop_results("unit", (DropCategory("none", 0),)) == ()


def test_picker_status_is_ok_when_every_rpc_is_dropped() -> None:
    assert picker_of().status == unavailable("down")
    assert picker_of(DropCategory("half", 500_000)).status == unavailable("down")
    assert picker_of(DropCategory("all", 1_000_000)).status == OK


def test_policy_holds_nothing_when_closed_before_its_first_update() -> None:
    helper = FakeHelper()
    ClusterImplFactory().create(helper).close()
    assert helper.reports == []
    assert helper.subchannels == []
