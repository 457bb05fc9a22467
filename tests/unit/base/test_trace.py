"""Unit tests of proxyless.base.trace."""

import pytest

from proxyless.base.trace import NULL, Event, Trace, hits


@pytest.fixture
def trace() -> Trace:
    return Trace()


def test_a_sink_gets_events_from_subscription_to_unsubscription(trace: Trace) -> None:
    seen: list[Event] = []
    trace.emit("before")
    unsubscribe = trace.subscribe(seen.append)
    trace.emit("during", name="p0", timer=10)
    unsubscribe()
    trace.emit("after")
    assert seen == [Event("during", {"name": "p0", "timer": 10})]


def test_active_is_true_while_there_is_a_subscription(trace: Trace) -> None:
    active = [trace.active]
    first = trace.subscribe(lambda event: None)
    second = trace.subscribe(lambda event: None)
    active.append(trace.active)
    first()
    active.append(trace.active)
    second()
    active.append(trace.active)
    assert active == [False, True, True, False]


def test_unsubscribing_twice_removes_only_its_own_subscription(trace: Trace) -> None:
    seen: list[Event] = []
    first = trace.subscribe(seen.append)
    trace.subscribe(seen.append)
    first()
    first()
    trace.emit("x")
    assert len(seen) == 1


def test_sinks_are_called_in_order_of_subscription(trace: Trace) -> None:
    seen: list[str] = []
    trace.subscribe(lambda event: seen.append("first"))
    trace.subscribe(lambda event: seen.append("second"))
    trace.emit("x")
    assert seen == ["first", "second"]


def test_a_sink_may_unsubscribe_while_it_is_called(trace: Trace) -> None:
    seen: list[str] = []

    def unsubscribing(event: Event) -> None:
        seen.append("unsubscribing")
        leave()

    leave = trace.subscribe(unsubscribing)
    trace.subscribe(lambda event: seen.append("stayer"))
    trace.emit("x")
    trace.emit("y")
    assert seen == ["unsubscribing", "stayer", "stayer"]


def test_an_exception_of_a_sink_propagates_to_the_emitter(trace: Trace) -> None:
    def checker(event: Event) -> None:
        raise AssertionError(event.name)

    trace.subscribe(checker)
    with pytest.raises(AssertionError, match=r"cluster\.lost"):
        trace.emit("cluster.lost")


def test_the_null_trace_cannot_be_subscribed_to() -> None:
    with pytest.raises(ValueError, match="null trace cannot be subscribed to"):
        NULL.subscribe(print)
    assert not NULL.active
    NULL.emit("x")


def test_text_of_an_event_has_its_name_and_fields() -> None:
    assert str(Event("priority.chosen", {"priority": 1, "why": "READY"})) == (
        "priority.chosen priority=1 why=READY"
    )


def emit_each(trace: Trace, *names: str) -> None:
    for name in names:
        trace.emit(name)


def test_hits_yields_the_events_with_that_name(trace: Trace) -> None:
    with hits(trace, "wanted") as events:
        trace.emit("other")
        trace.emit("wanted", n=1)
    trace.emit("wanted", n=2)
    assert events == [Event("wanted", {"n": 1})]


def test_hits_fails_with_the_names_of_other_events(trace: Trace) -> None:
    text = r"event 'wanted' was not emitted, got \['a', 'b'\]"
    with pytest.raises(AssertionError, match=text), hits(trace, "wanted"):
        emit_each(trace, "b", "a", "b")
    assert not trace.active


def test_hits_propagates_an_exception_of_its_block(trace: Trace) -> None:
    with pytest.raises(KeyError), hits(trace, "wanted"):
        raise KeyError
    assert not trace.active
