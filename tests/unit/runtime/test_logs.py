"""Unit tests of proxyless.runtime.logs."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, TextIO

import pytest

from proxyless.base import Event, IpAddress, State, Status, StatusCode
from proxyless.runtime import LogTrace, apply_environment, logs
from proxyless.runtime.logs import LOGGER_NAMES, TRACERS, choose_tracers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "proxyless", *TRACERS.values())]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def is_active(trace: LogTrace) -> bool:
    """A function, because mypy assumes that an attribute does not change."""
    return trace.active


def bare(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The root logger of an application without handlers."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    ours = logging.getLogger("proxyless")
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    return ours


# ---------------------------------------------------------------------------------------------
# LogTrace


def test_event_is_logged_to_the_logger_of_its_package(caplog: pytest.LogCaptureFixture) -> None:
    trace = LogTrace()
    caplog.set_level(logging.DEBUG, "proxyless.lb.priority")
    trace.emit("priority.choice", child="a", priority=1, reason="failover timer is pending")
    trace.emit("pick_first.state", before=State.IDLE)
    [record] = caplog.records
    assert (record.name, record.levelname) == ("proxyless.lb.priority", "DEBUG")
    assert record.getMessage() == (
        'priority.choice child=a priority=1 reason="failover timer is pending"'
    )


def test_a_level_may_be_changed_at_any_time() -> None:
    trace, logger = LogTrace(), logging.getLogger("proxyless.xds.client")
    assert not is_active(trace)
    logger.setLevel(logging.DEBUG)
    assert is_active(trace)
    logger.setLevel(logging.NOTSET)
    assert not is_active(trace)
    logging.getLogger("proxyless").setLevel(logging.DEBUG)
    assert is_active(trace)
    logging.disable(logging.DEBUG)
    assert not is_active(trace)
    logging.disable(logging.NOTSET)


def test_level_that_another_thread_changes_during_the_check_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, logger = LogTrace(), logging.getLogger("proxyless.xds.client")
    logging.getLogger("proxyless").setLevel(logging.INFO)

    def answer_too_early(_level: int) -> bool:
        monkeypatch.undo()
        logger.setLevel(logging.DEBUG)
        return False

    monkeypatch.setattr(logger, "isEnabledFor", answer_too_early)
    assert not is_active(trace)
    assert is_active(trace)


def test_new_logger_of_another_thread_does_not_break_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, logger = LogTrace(), logging.getLogger("proxyless.channel")
    logging.getLogger("proxyless").setLevel(logging.INFO)

    def be_interrupted(_level: int) -> bool:
        trace.emit("policy_of_another_thread.state")
        return False

    monkeypatch.setattr(logger, "isEnabledFor", be_interrupted)
    assert not is_active(trace)


def test_fields_are_not_formatted_without_a_handler() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("fields were formatted")

    LogTrace().emit("priority.choice", child=Costly())


def test_sinks_get_all_events_at_any_level() -> None:
    trace, events = LogTrace(), list[Event]()
    unsubscribe = trace.subscribe(events.append)
    assert is_active(trace)
    trace.emit("dns.look_up", host="a")
    unsubscribe()
    assert not is_active(trace)
    trace.emit("dns.look_up", host="b")
    assert [event.fields["host"] for event in events] == ["a"]


def test_event_of_an_application_policy_has_a_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = LogTrace()
    caplog.set_level(logging.DEBUG, "proxyless.my_policy")
    trace.emit("my_policy.state", after=State.READY)
    trace.emit("my_policy.state", after=State.IDLE)
    assert is_active(trace)
    assert [record.getMessage() for record in caplog.records] == [
        "my_policy.state after=READY",
        "my_policy.state after=IDLE",
    ]


def test_event_is_always_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "proxyless.resolver.dns")
    status = Status(StatusCode.UNAVAILABLE, "no\nsuch host")
    addresses = (IpAddress("10.0.0.1", 80), IpAddress("::1", 80))
    LogTrace().emit("dns.answer", host="a\nb", status=status, endpoints=addresses, number=1.5)
    assert caplog.records[0].getMessage() == (
        r'dns.answer host="a\nb" status=UNAVAILABLE: no such host'
        " endpoints=[10.0.0.1:80, [::1]:80] number=1.5"
    )


# ---------------------------------------------------------------------------------------------
# Environment variables


@pytest.mark.parametrize(
    ("tracers", "chosen"),
    [
        (["xds_client"], {"proxyless.xds.client"}),
        (["priority_lb", "cds_lb"], {"proxyless.lb.priority", "proxyless.xds.lb.cds"}),
        (["all"], set(TRACERS.values())),
        (["*"], set(TRACERS.values())),
        (["all", "-xds_client"], set(TRACERS.values()) - {"proxyless.xds.client"}),
        (["xds_cl*", "-*_lb"], {"proxyless.xds.client"}),
        (["-xds_client"], set()),
        (["fault_injection_filter", "*refcount*", "list_tracers"], set()),
        (["proxyless.lb"], {"proxyless.lb"}),
    ],
)
def test_tracers_are_chosen_in_the_order_of_the_list(tracers: list[str], chosen: set[str]) -> None:
    assert choose_tracers(tracers) == (chosen, [])


def test_unknown_tracers_cause_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apply_environment({"GRPC_TRACE": "xds_clint,nonsense\n,,xds_client"})
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == ('GRPC_TRACE has unknown tracers: "xds_clint", "nonsense"')
    assert logging.getLogger("proxyless.xds.client").level == logging.DEBUG


@pytest.mark.parametrize(
    ("verbosity", "level"),
    [
        ("DEBUG", logging.DEBUG),
        ("info", logging.INFO),
        (" Error ", logging.ERROR),
        ("NONE", logging.CRITICAL + 1),
    ],
)
def test_verbosity_is_the_level_of_all_loggers(verbosity: str, level: int) -> None:
    apply_environment({"GRPC_VERBOSITY": verbosity})
    assert logging.getLogger("proxyless.lb.priority").getEffectiveLevel() == level


def test_invalid_verbosity_causes_a_warning_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apply_environment({"GRPC_VERBOSITY": "LOUD"})
    assert [record.getMessage() for record in caplog.records] == [
        'GRPC_VERBOSITY is "LOUD", wanted DEBUG, INFO, ERROR, NONE'
    ]
    assert logging.getLogger("proxyless").level == logging.NOTSET


def test_other_loggers_stay_at_info_when_tracers_are_named() -> None:
    apply_environment({"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "priority_lb"})
    assert logging.getLogger("proxyless.lb.priority").isEnabledFor(logging.DEBUG)
    rest = logging.getLogger("proxyless.xds.client")
    assert rest.getEffectiveLevel() == logging.INFO


def test_verbosity_none_disables_tracers() -> None:
    apply_environment({"GRPC_VERBOSITY": "NONE", "GRPC_TRACE": "all"})
    assert not LogTrace().active


def test_logs_go_to_stderr_when_the_application_has_no_handler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = bare(monkeypatch)
    apply_environment({"GRPC_TRACE": "xds_resolver"})
    _, handler = ours.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    LogTrace().emit("xds_resolver.config", listener="orders")
    shown = capsys.readouterr().err
    assert shown.endswith("DEBUG proxyless.xds.resolver: xds_resolver.config listener=orders\n")
    apply_environment({"GRPC_TRACE": "xds_resolver"})
    assert len(ours.handlers) == 2


def test_concurrent_threads_add_one_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    both = threading.Barrier(2)

    class Slow(logging.StreamHandler[TextIO]):
        def __init__(self, stream: TextIO) -> None:
            super().__init__(stream)
            both.wait()

    monkeypatch.setattr(logs, "_HANDLERS", {})
    monkeypatch.setattr(logging, "StreamHandler", Slow)
    tracers = {"GRPC_VERBOSITY": "INFO"}
    threads = [threading.Thread(target=apply_environment, args=(tracers,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in ours.handlers] == [logging.NullHandler, Slow]


def test_no_handler_is_added_when_the_application_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    logging.getLogger().handlers.append(logging.NullHandler())
    apply_environment({"GRPC_VERBOSITY": "INFO"})
    assert len(ours.handlers) == 1


def test_nothing_is_changed_without_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    apply_environment({"GRPC_TRACE": " , ", "GRPC_VERBOSITY": ""})
    assert (ours.level, len(ours.handlers)) == (logging.NOTSET, 1)


def test_every_tracer_enables_a_logger_in_use() -> None:
    assert set(TRACERS.values()) <= set(LOGGER_NAMES.values())
