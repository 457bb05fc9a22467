"""Unit tests of tools.simulation.probes."""

from proxyless.base import Endpoint, IpAddress, State, Status, StatusCode
from proxyless.controlplane.answers import Nack
from proxyless.sim.journal import Journal
from tools.simulation.options import Options
from tools.simulation.plans import ClusterPlan, MeshPlan
from tools.simulation.probes import (
    DNS_CHANGED,
    DNS_LEAF,
    GOAWAY_RACE,
    NACK_THEN_GOOD,
    NAMES,
    PRIMARY_BACK,
    QUEUED_UNROUTED,
    RETENTION_OVER,
    SENT_AGAIN,
    SESSION_DRAINING,
    STUCK,
    Probes,
)
from tools.simulation.records import ClientRecord, ClusterView, ConfigRecord, PickRecord, RpcRecord
from tools.simulation.scenario import Scenario

FIRST, SECOND = "10.0.0.1:50051", "10.0.0.2:50051"


def watch() -> tuple[Journal, Probes]:
    journal = Journal(lambda: 0.0)
    return journal, Probes(journal, lambda: 0.0)


def test_probe_is_hit_when_the_fields_match() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal, lambda: 0.0)
    journal.note("client-0", "rpc.end", code="OK", details="")
    assert not probes.hits
    journal.note("client-0", "rpc.end", code="DEADLINE_EXCEEDED", details="")
    assert probes.hits == {"rpc out of time": 1}


def test_probe_is_hit_when_the_host_matches() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal, lambda: 0.0)
    journal.note("control-1", "control.stream_opened")
    assert not probes.hits
    journal.note("control-2", "control.stream_opened")
    assert probes.hits == {"fallback server connected": 1}


def test_retention_probe_is_hit_when_a_child_was_deactivated_for_fifteen_minutes() -> None:
    now_s = 0.0
    journal = Journal(lambda: now_s)
    probes = Probes(journal, lambda: now_s)
    for name, rested_s in (("closed", 60.0), ("let go", 900.0)):
        journal.note("client-0", "priority.child", child=name, change="deactivated")
        now_s += rested_s
        journal.note("client-0", "priority.child", child=name, change="destroyed")
    assert probes.hits[RETENTION_OVER] == 1


def test_names_of_probes_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_stuck_probe_is_hit_after_fifty_consecutive_failures() -> None:
    journal, probes = watch()

    def fail(times: int) -> None:
        for _ in range(times):
            for state in (State.CONNECTING, State.TRANSIENT_FAILURE):
                journal.note("client-0", "subchannel.state", address=FIRST, state=state)

    fail(49)
    journal.note("client-0", "subchannel.state", address=FIRST, state=State.READY)
    fail(49)
    assert probes.hits[STUCK] == 0
    fail(10)
    assert probes.hits[STUCK] == 1


def test_nack_probe_is_hit_when_a_rejected_type_is_accepted_later() -> None:
    journal, probes = watch()
    nack = Nack("client-0", "type/Cluster", "1", 3, "no")
    journal.note("control-1", "controlplane.nack", nack=nack)
    journal.note("control-1", "controlplane.ack", node_id="client-0", type_url="type/Listener")
    assert probes.hits[NACK_THEN_GOOD] == 0
    journal.note("control-1", "controlplane.ack", node_id="client-0", type_url="type/Cluster")
    assert probes.hits[NACK_THEN_GOOD] == 1


def test_primary_probe_is_hit_when_a_client_returns_to_the_primary_server() -> None:
    journal, probes = watch()
    for server, times in (("control-1", 0), ("control-2", 0), ("control-1", 1), ("control-1", 1)):
        journal.note(server, "controlplane.ack", node_id="client-0", type_url="type/Cluster")
        assert probes.hits[PRIMARY_BACK] == times


def test_dns_probe_is_hit_when_an_answer_differs() -> None:
    journal, probes = watch()
    one, two = (Endpoint((IpAddress(f"10.0.0.{n}", 80),)) for n in (1, 2))
    failure = Status(StatusCode.UNAVAILABLE, "dns: no")
    for answer, times in (((one,), 0), ((one,), 0), (failure, 0), ((one,), 0), ((two,), 1)):
        journal.note("client-0", "dns.answer", host="web.mesh", endpoints=answer)
        assert probes.hits[DNS_CHANGED] == times
    assert probes.hits["DNS look-up failed"] == 1


def test_probes_of_the_records_are_counted() -> None:
    scenario = Scenario(1, Options(clients=0, backends=2, clusters=1))
    for name in scenario.backend_names:
        scenario.world.backend(name)
    clusters = {"web": ClusterPlan(((FIRST,),)), "top": ClusterPlan(leaves=("web", "dns"))}
    scenario.publish(MeshPlan(1, {"": {"top": 1}}, clusters))
    view = ClusterView((frozenset(), frozenset({SECOND})), frozenset({FIRST}), dns_priority=1)
    client = ClientRecord("client-0")
    config = ConfigRecord(0.0, 1, {"top": view, "web": view}, frozenset({"top"}))
    client.configs.append(config)
    rpc = RpcRecord("rpc-0", client, "unary", "", False, 5.0, 1_000.0)
    rpc.picks += [
        PickRecord(1_000.0, "web", "", 0, "Queue"),
        PickRecord(1_001.0, "top", FIRST, 0, "Complete"),
        PickRecord(1_002.0, "top", SECOND, 0, "Complete"),
    ]
    rpc.ended_s, rpc.code = 1_003.0, "OK"
    rpc.arrivals.append("web-1")
    scenario.recorder.rpcs["rpc-0"] = rpc
    scenario.recorder.goaways["web-0"] = [1_001.5]
    _, probes = watch()
    probes.count_records(scenario)
    reached = (QUEUED_UNROUTED, SENT_AGAIN, GOAWAY_RACE, SESSION_DRAINING, DNS_LEAF)
    assert {name for name, times in probes.hits.items() if times} == set(reached)
    scenario.recorder.goaways["web-0"] = [1_002.5]
    probes.hits.clear()
    probes.count_records(scenario)
    assert probes.hits[GOAWAY_RACE] == 0
    scenario.world.loop.close()
