"""Is a situation counted when it is reached, and only then?"""

from proxyless.sim.journal import Journal
from proxyless.sim.probes import RETENTION_OVER, Probes


def test_the_fields_decide() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal, lambda: 0.0)
    journal.note("client-0", "rpc.end", code="OK", details="")
    assert not probes.hits
    journal.note("client-0", "rpc.end", code="DEADLINE_EXCEEDED", details="")
    assert probes.hits == {"rpc out of time": 1}


def test_the_host_decides() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal, lambda: 0.0)
    journal.note("control-1", "control.stream_opened")
    assert not probes.hits
    journal.note("control-2", "control.stream_opened")
    assert probes.hits == {"fallback server asked": 1}


def test_a_child_that_rested_for_fifteen_minutes_is_told_from_one_that_was_closed() -> None:
    now_s = 0.0
    journal = Journal(lambda: now_s)
    probes = Probes(journal, lambda: now_s)
    for name, rested_s in (("closed", 60.0), ("let go", 900.0)):
        journal.note("client-0", "priority.child", child=name, change="deactivated")
        now_s += rested_s
        journal.note("client-0", "priority.child", child=name, change="destroyed")
    assert probes.hits[RETENTION_OVER] == 1
