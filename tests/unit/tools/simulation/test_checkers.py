"""Unit tests of tools.simulation.checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from proxyless.base import State
from proxyless.controlplane.resource import CLUSTER
from tools.simulation.checkers import (
    CHECKERS,
    check_attempts,
    check_configs,
    check_convergence,
    check_nothing_broke,
    check_nothing_is_left,
    check_outages,
    check_outcomes,
    check_picks,
    check_priorities,
    check_retries,
    check_routes,
    check_sessions,
    check_stickiness,
    check_subscriptions,
)
from tools.simulation.fault_log import AWAY, CONTROL
from tools.simulation.options import Options
from tools.simulation.plans import DELAY_S, ClusterPlan, MeshPlan
from tools.simulation.records import (
    ClientRecord,
    ClusterView,
    ConfigRecord,
    Ejection,
    PickRecord,
    RpcRecord,
)
from tools.simulation.scenario import Scenario

Check = Callable[[Scenario], Iterator[str]]
USUAL = Options()


class Run:
    """A run whose records the test makes: one client, one cluster, two backends."""

    def __init__(self, options: Options = USUAL) -> None:
        self.scenario = Scenario(1, replace(options, clients=0, backends=2, clusters=1))
        for name in self.scenario.backend_names:
            self.scenario.world.backend(name)
        self.first, self.second = map(self.scenario.address, self.scenario.backend_names)
        self.start_s = self.scenario.start_s
        plan = MeshPlan(1, {"": {"web": 1}}, {"web": ClusterPlan(((self.first,), (self.second,)))})
        self.scenario.publish(plan)
        self.client = ClientRecord("client-0")
        self.scenario.recorder.channels.append(self.client)
        self.scenario.recorder.clients["client-0"] = self.client
        self.config()

    def config(self, generation: int = 1, view: ClusterView | None = None) -> None:
        known = view or ClusterView((frozenset({self.first}), frozenset({self.second})))
        record = ConfigRecord(self.start_s, generation, {"web": known}, frozenset({"web"}))
        self.client.configs.append(record)

    def rpc(self, code: str = "OK", *, picked: str | None = None, at_s: float = 300.0) -> RpcRecord:
        """An RPC that was started and picked `at_s` after the start, and ended a second later."""
        started_s = self.start_s + at_s
        rpc = RpcRecord("rpc-0", self.client, "unary", "", False, 5.0, started_s)
        address = self.first if picked is None else picked
        answer = "Complete" if address else "Queue"
        rpc.picks.append(PickRecord(started_s, "web", address, 0, answer))
        rpc.ended_s, rpc.code = started_s + 1.0, code
        if code == "OK":
            rpc.served_by = self.scenario.backend_at(address)
            rpc.arrivals.append(rpc.served_by)
        self.scenario.recorder.rpcs["rpc-0"] = rpc
        return rpc

    def found(self, check: Check) -> list[str]:
        return list(check(self.scenario))


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.scenario.world.loop.close()


def test_a_good_run_has_no_violation(run: Run) -> None:
    run.rpc()
    assert [text for check in CHECKERS for text in check(run.scenario)] == []


def test_rpc_is_a_violation_when_its_generation_does_not_route_to_its_cluster(run: Run) -> None:
    run.rpc().picks[0] = PickRecord(run.start_s, "old", run.first, 0, "Complete")
    assert "went to cluster 'old' under generation 1" in run.found(check_routes)[0]


def test_rpc_is_a_violation_when_it_is_picked_for_in_two_clusters(run: Run) -> None:
    run.rpc().picks.append(PickRecord(run.start_s, "other", run.first, 0, "Complete"))
    assert "several clusters" in run.found(check_routes)[0]


def test_config_is_a_violation_when_its_endpoints_were_never_published_together(run: Run) -> None:
    run.config(view=ClusterView((frozenset({run.first, run.second}),)))
    assert "was never so" in run.found(check_configs)[0]


def test_pick_is_a_violation_when_its_address_is_not_in_the_config(run: Run) -> None:
    run.rpc(picked="10.9.9.9:80")
    assert "not in cluster 'web'" in run.found(check_picks)[0]


@pytest.mark.parametrize(
    ("options", "after_s", "is_found"),
    [
        (USUAL, 29.0, False),
        (USUAL, 31.0, True),
        (replace(USUAL, lb_policy="RING_HASH"), 29.0, True),
    ],
)
def test_pick_of_an_endpoint_is_found_when_it_was_removed_long_ago(
    options: Options, after_s: float, *, is_found: bool
) -> None:
    run = Run(options)
    rpc = run.rpc(picked=run.second)
    only_first = {"web": ClusterView((frozenset({run.first}),))}
    since_s = rpc.started_s - after_s
    run.client.configs.append(ConfigRecord(since_s, 2, only_first, frozenset({"web"})))
    rpc.picks[0] = replace(rpc.picks[0], config=1)
    assert bool(run.found(check_picks)) is is_found
    run.scenario.world.loop.close()


def test_lower_priority_is_a_violation_when_the_higher_one_is_sound(run: Run) -> None:
    run.rpc(picked=run.second)
    assert "web-0 of priority 0 is sound" in run.found(check_priorities)[0]


def test_lower_priority_is_allowed_when_the_higher_one_has_a_fault(run: Run) -> None:
    run.rpc(picked=run.second)
    with run.scenario.fault_log.fault("web-0"):
        assert run.found(check_priorities) == []


@pytest.mark.parametrize(
    ("options", "after_s", "is_found"),
    [
        (USUAL, 29.0, False),
        (USUAL, 31.0, True),
        (replace(USUAL, lb_policy="RING_HASH"), 29.0, True),
    ],
)
def test_lower_priority_is_a_violation_when_its_endpoint_left_the_higher_one_long_ago(
    options: Options, after_s: float, *, is_found: bool
) -> None:
    run = Run(options)
    rpc = run.rpc(picked=run.second)
    both = ClusterView((frozenset({run.first, run.second}),))
    run.client.configs[0] = ConfigRecord(run.start_s, 1, {"web": both}, frozenset({"web"}))
    moved = ClusterView((frozenset({run.first}), frozenset({run.second})))
    since_s = rpc.started_s - after_s
    run.client.configs.append(ConfigRecord(since_s, 1, {"web": moved}, frozenset({"web"})))
    rpc.picks[0] = replace(rpc.picks[0], config=1)
    assert bool(run.found(check_priorities)) is is_found
    run.scenario.world.loop.close()


@pytest.mark.parametrize("has_endpoints", [True, False])
def test_new_cluster_without_endpoints_is_a_violation_in_an_outage_when_traffic_flows(
    run: Run, *, has_endpoints: bool
) -> None:
    found = (frozenset({run.first}),) if has_endpoints else ()
    run.client.configs.clear()
    run.config(view=ClusterView(found))
    plan = MeshPlan(2, {"": {"new": 1}}, {"new": ClusterPlan(((run.first,),))})
    run.scenario.publish(plan)
    at_s = run.start_s + 10.0
    run.client.configs.append(ConfigRecord(at_s, 2, {}, frozenset({"new"})))
    with run.scenario.fault_log.fault(AWAY):
        assert [AWAY in each for each in run.found(check_outages)] == [True] * has_endpoints


def test_failure_is_a_violation_when_an_endpoint_is_sound(run: Run) -> None:
    run.rpc("UNAVAILABLE", picked="")
    assert "though web-0 is sound" in run.found(check_outcomes)[0]


def test_failure_is_allowed_when_its_endpoint_has_a_fault(run: Run) -> None:
    run.rpc("UNAVAILABLE")
    with run.scenario.fault_log.fault("web-0"):
        assert run.found(check_outcomes) == []


def test_failure_is_allowed_when_all_endpoints_have_faults(run: Run) -> None:
    run.rpc("UNAVAILABLE", picked="")
    with run.scenario.fault_log.fault("web-0", "web-1"):
        assert run.found(check_outcomes) == []


def test_unrouted_rpc_may_fail_only_when_the_control_plane_has_a_fault(run: Run) -> None:
    run.rpc("UNAVAILABLE").picks.clear()
    assert "though control is sound" in run.found(check_outcomes)[0]
    with run.scenario.fault_log.fault(CONTROL):
        assert run.found(check_outcomes) == []


def test_rpc_may_fail_when_its_caller_cancelled_it(run: Run) -> None:
    run.rpc("CANCELLED", picked="").is_cancelled_by_us = True
    assert run.found(check_outcomes) == []


def test_rpc_is_a_violation_when_it_never_ended(run: Run) -> None:
    run.rpc().ended_s = None
    assert run.found(check_outcomes) == ["rpc-0: never ended"]


def test_answer_is_a_violation_when_the_rpc_never_arrived(run: Run) -> None:
    run.rpc().arrivals.clear()
    assert "never arrived" in run.found(check_outcomes)[0]


def test_failed_attempt_is_a_violation_when_its_backend_has_no_fault(run: Run) -> None:
    rpc = run.rpc("UNAVAILABLE")
    [found] = run.found(check_attempts)
    assert found == "rpc-0: UNAVAILABLE '', though nothing was wrong with web-0"
    rpc.code = "DEADLINE_EXCEEDED"
    assert run.found(check_attempts) == [], "it had no time left when it was sent"
    rpc.code = "UNAVAILABLE"
    with run.scenario.fault_log.fault("web-0"):
        assert run.found(check_attempts) == []


def test_failed_rpc_is_a_violation_when_it_was_not_retried() -> None:
    run = Run(Options(retries=2))
    rpc = run.rpc("UNAVAILABLE")
    assert run.found(check_retries) == ["rpc-0: '' after 1 attempts, wanted 3"]
    rpc.picks *= 3
    assert run.found(check_retries) == []
    run.scenario.world.loop.close()


def test_session_may_leave_its_host_only_when_that_has_a_fault(run: Run) -> None:
    rpc = run.rpc(picked=run.first)
    rpc.home, rpc.home_cluster = run.second, "web"
    assert "though 10.0.0.2:50051 is sound" in run.found(check_sessions)[0]
    with run.scenario.fault_log.fault("web-1"):
        assert run.found(check_sessions) == []


def test_session_may_leave_its_cluster_only_when_no_route_has_it(run: Run) -> None:
    rpc = run.rpc()
    rpc.home, rpc.home_cluster = run.first, "other"
    assert run.found(check_sessions) == [], "no route leads there"
    run.scenario.generations[1] = MeshPlan(1, {"": {"web": 1, "other": 1}})
    assert "left its cluster 'other' for 'web'" in run.found(check_sessions)[0]


def test_old_generation_is_a_violation_long_after_the_faults(run: Run) -> None:
    run.scenario.publish(run.scenario.plan.rerouted(default={"web": 2}))
    assert run.found(check_convergence) == ["client-0: has generation 1, wanted 2"]


def test_old_endpoints_are_a_violation_long_after_the_faults(run: Run) -> None:
    plan = run.scenario.plan.with_clusters(web=ClusterPlan(((run.second,),)))
    run.scenario.publish(plan)
    assert run.found(check_convergence) == ["client-0: cluster 'web' is not the newest"]


def test_failure_is_a_violation_long_after_the_faults(run: Run) -> None:
    run.rpc("UNAVAILABLE", at_s=500.0)
    assert "long after the last fault" in run.found(check_convergence)[0]


def test_subscription_is_a_violation_when_no_route_needs_it(run: Run) -> None:
    run.scenario.subscriptions["client-0"] = {CLUSTER: {"web", "old"}}
    assert run.found(check_subscriptions) == [
        "client-0: asks for Cluster ['old', 'web'], wanted ['web']"
    ]


def test_failure_is_allowed_when_all_endpoints_are_ejected(run: Run) -> None:
    run.rpc("UNAVAILABLE", picked="")
    assert run.found(check_outcomes) != []
    started_s = run.start_s + 299.0
    for address in (run.first, run.second):
        run.scenario.recorder.ejections.append(
            Ejection("client-0", frozenset({address}), started_s, started_s + 20.0)
        )
    assert run.found(check_outcomes) == []


def test_failure_long_after_the_faults_is_allowed_when_all_endpoints_are_ejected(run: Run) -> None:
    rpc = run.rpc("UNAVAILABLE", picked="", at_s=500.0)
    for address in (run.first, run.second):
        assert run.found(check_convergence) != []
        ejection = Ejection("client-0", frozenset({address}), rpc.started_s - 1.0)
        run.scenario.recorder.ejections.append(ejection)
    assert run.found(check_convergence) == []


def test_rpc_may_fail_when_it_was_dropped_by_the_config(run: Run) -> None:
    rpc = run.rpc("UNAVAILABLE", picked="", at_s=500.0)
    assert run.found(check_outcomes) != []
    assert run.found(check_convergence) != []
    rpc.picks[0] = PickRecord(rpc.started_s, "web", "", 0, "Drop")
    rpc.details = "cluster 'web': EDS-configured drop: too much"
    assert run.found(check_outcomes) == []
    assert run.found(check_convergence) == []


def test_rpc_may_use_an_older_route_when_it_was_delayed_by_the_config() -> None:
    for is_delayed, violations in ((False, 1), (True, 0)):
        run = Run(Options(has_injected_faults=is_delayed))
        run.scenario.publish(
            run.scenario.plan.with_clusters(new=ClusterPlan()).rerouted(default={"new": 1})
        )
        rpc = run.rpc()
        changed_s = rpc.started_s - DELAY_S / 2
        known = run.client.configs[0]
        run.client.configs.append(
            ConfigRecord(changed_s, 2, {**known.clusters}, frozenset({"web", "new"}))
        )
        rpc.picks[0] = PickRecord(rpc.started_s, "web", run.first, 1, "Complete")
        assert len(run.found(check_routes)) == violations
        run.scenario.world.loop.close()


def test_config_of_a_dns_cluster_has_the_answers_of_dns(run: Run) -> None:
    answer = frozenset({run.first, run.second})
    plan = run.scenario.plan.with_clusters(web=ClusterPlan(dns_name="web.mesh"))
    run.scenario.cluster_forms.clear()
    run.scenario.publish(plan)
    run.config(view=ClusterView((answer,), dns_priority=0))
    assert any("was never so" in text for text in run.found(check_configs))
    run.scenario.dns_answers.append(answer)
    run.client.configs.pop(0)
    assert run.found(check_configs) == []
    assert run.found(check_convergence) == [], "no further look-up while all endpoints are READY"


def test_session_may_use_any_address_of_its_endpoint(run: Run) -> None:
    rpc = run.rpc(picked=run.second)
    assert run.found(check_priorities) != []
    rpc.home, rpc.home_cluster = run.first, "web"
    rpc.home_aliases = frozenset({run.first, run.second})
    assert run.found(check_priorities) == []
    assert run.found(check_sessions) == []


def test_ring_may_fail_after_the_failover_timeout_when_an_endpoint_has_a_fault() -> None:
    run = Run(Options(lb_policy="RING_HASH"))
    rpc = run.rpc("UNAVAILABLE", picked="")
    rpc.details = "failover timeout (10s) expired while CONNECTING"
    assert run.found(check_outcomes) != []
    with run.scenario.fault_log.fault("web-1"):
        assert run.found(check_outcomes) == []
        rpc.details = "connection refused"
        assert run.found(check_outcomes) != []
    run.scenario.world.loop.close()


def test_lower_priority_is_allowed_when_the_ring_waits_for_an_endpoint_with_a_fault() -> None:
    run = Run(Options(lb_policy="RING_HASH"))
    stranger = "10.9.9.9:80"
    run.client.configs.clear()
    run.config(view=ClusterView((frozenset({run.first, stranger}), frozenset({run.second}))))
    run.rpc(picked=run.second)
    assert run.found(check_priorities) != []
    with run.scenario.fault_log.fault(run.scenario.backend_at(stranger)):
        assert run.found(check_priorities) == []
    run.scenario.world.loop.close()


def test_rpc_need_not_be_retried_when_its_reply_had_begun() -> None:
    run = Run(Options(retries=2, reply_bytes=4_000))
    rpc = run.rpc("UNAVAILABLE")
    assert run.found(check_retries) != []
    rpc.arrivals.append("web-0")
    assert run.found(check_retries) == []
    run.scenario.world.loop.close()


def test_leaving_transient_failure_is_a_violation_without_a_connection(run: Run) -> None:
    note = run.scenario.world.journal.note
    for before, after in ((None, State.CONNECTING), (State.TRANSIENT_FAILURE, State.READY)):
        note("client-0", "pick_first.state", before=before, after=after)
    assert run.found(check_stickiness) == []
    note("client-0", "pick_first.state", before=State.TRANSIENT_FAILURE, after=State.CONNECTING)
    assert run.found(check_stickiness) == [
        "client-0: left TRANSIENT_FAILURE for CONNECTING at 1000.000 s"
    ]


def test_exceptions_and_leftovers_are_violations(run: Run) -> None:
    run.scenario.world.exceptions.extend(["boom", "boom"])
    run.scenario.world.left_behind.append("a timer")
    assert run.found(check_nothing_broke) == ["exception, 2 times: boom"]
    assert run.found(check_nothing_is_left) == ["left behind, 1 times: a timer"]
