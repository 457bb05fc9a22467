"""Is a situation counted when it is reached, and only then?"""

from proxyless.sim.journal import Journal
from proxyless.sim.probes import Probes


def test_the_fields_decide() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal)
    journal.note("client-0", "rpc.end", code="OK", details="")
    assert not probes.hits
    journal.note("client-0", "rpc.end", code="DEADLINE_EXCEEDED", details="")
    assert probes.hits == {"rpc out of time": 1}


def test_the_host_decides() -> None:
    journal = Journal(lambda: 0.0)
    probes = Probes(journal)
    journal.note("control-1", "control.stream_opened")
    assert not probes.hits
    journal.note("control-2", "control.stream_opened")
    assert probes.hits == {"fallback server asked": 1}
