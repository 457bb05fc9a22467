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


def test_active_tells_whether_anybody_listens(trace: Trace) -> None:
    active = [trace.active]
    first = trace.subscribe(lambda event: None)
    second = trace.subscribe(lambda event: None)
    active.append(trace.active)
    first()
    active.append(trace.active)
    second()
    active.append(trace.active)
    assert active == [False, True, True, False]


def test_unsubscribing_twice_takes_only_its_own_subscription(trace: Trace) -> None:
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


def test_a_sink_may_leave_while_an_event_is_passed_on(trace: Trace) -> None:
    seen: list[str] = []

    def leaver(event: Event) -> None:
        seen.append("leaver")
        leave()

    leave = trace.subscribe(leaver)
    trace.subscribe(lambda event: seen.append("stayer"))
    trace.emit("x")
    trace.emit("y")
    assert seen == ["leaver", "stayer", "stayer"]


def test_what_a_sink_raises_reaches_the_emitter(trace: Trace) -> None:
    def checker(event: Event) -> None:
        raise AssertionError(event.name)

    trace.subscribe(checker)
    with pytest.raises(AssertionError, match=r"cluster\.lost"):
        trace.emit("cluster.lost")


def test_the_null_trace_has_no_listeners() -> None:
    with pytest.raises(ValueError, match="null trace cannot be subscribed to"):
        NULL.subscribe(print)
    assert not NULL.active
    NULL.emit("x")


def test_text_of_an_event() -> None:
    assert str(Event("priority.chosen", {"priority": 1, "why": "READY"})) == (
        "priority.chosen priority=1 why=READY"
    )


def emit_each(trace: Trace, *names: str) -> None:
    for name in names:
        trace.emit(name)


def test_hits_gives_the_events_with_that_name(trace: Trace) -> None:
    with hits(trace, "wanted") as events:
        trace.emit("other")
        trace.emit("wanted", n=1)
    trace.emit("wanted", n=2)
    assert events == [Event("wanted", {"n": 1})]


def test_hits_fails_and_says_what_came_instead(trace: Trace) -> None:
    text = r"event 'wanted' was not emitted, got \['a', 'b'\]"
    with pytest.raises(AssertionError, match=text), hits(trace, "wanted"):
        emit_each(trace, "b", "a", "b")
    assert not trace.active


def test_hits_does_not_hide_what_its_body_raised(trace: Trace) -> None:
    with pytest.raises(KeyError), hits(trace, "wanted"):
        raise KeyError
    assert not trace.active
