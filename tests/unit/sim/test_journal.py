"""Unit tests of proxyless.sim.journal."""

from proxyless.base import State
from proxyless.sim.journal import LINE_CHARS_MAX, Journal


def test_lines_have_columns_and_a_maximum_length() -> None:
    journal = Journal(lambda: 1_000.25)
    journal.note("web-1", "backend.start", state=State.READY, names=("a", "b"), s=0.1)
    journal.note("web-1", "long", text="x" * 1_000)
    first, second = journal.lines
    assert first == (
        " 1000.250000 web-1        backend.start              state=READY names=[a,b] s=0.100000"
    )
    assert len(second) == LINE_CHARS_MAX
    assert journal.counts == {"backend.start": 1, "long": 1}


def test_type_urls_are_shortened() -> None:
    journal = Journal(lambda: 0.0)
    journal.note("a", "b", type_url="type.googleapis.com/envoy.config.cluster.v3.Cluster")
    assert next(iter(journal.lines)).endswith("type_url=Cluster")


def test_digest_is_over_all_lines() -> None:
    short, long = Journal(lambda: 0.0, kept=1), Journal(lambda: 0.0, kept=None)
    for journal in (short, long):
        journal.note("a", "first")
        journal.note("a", "second")
    assert len(tuple(short.lines)) == 1
    assert short.digest == long.digest
    long.note("a", "third")
    assert short.digest != long.digest


def test_listeners_are_called_for_each_event() -> None:
    journal, received = Journal(lambda: 0.0), list[tuple[str, str, dict[str, object]]]()
    journal.subscribe(lambda *event: received.append(event))
    journal.note("a", "b", c=1)
    assert received == [("a", "b", {"c": 1})]
