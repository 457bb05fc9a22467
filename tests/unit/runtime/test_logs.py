"""Who hears in the standard library's logs what happens, and how is that asked for?"""

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
    """A call, since mypy takes it that an attribute stays what it was."""
    return trace.active


def bare(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger of an application that has configured nothing."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    ours = logging.getLogger("proxyless")
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    return ours


# ---------------------------------------------------------------------------------------------
# From the trace to the loggers


def test_an_event_is_logged_where_its_room_logs(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_level_that_another_thread_changes_meanwhile_is_not_missed(
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


def test_an_event_of_a_new_kind_that_another_thread_has_meanwhile_harms_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, logger = LogTrace(), logging.getLogger("proxyless.channel")
    logging.getLogger("proxyless").setLevel(logging.INFO)

    def be_interrupted(_level: int) -> bool:
        trace.emit("policy_of_another_thread.state")
        return False

    monkeypatch.setattr(logger, "isEnabledFor", be_interrupted)
    assert not is_active(trace)


def test_nothing_is_made_of_fields_that_nobody_reads() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("somebody reads it")

    LogTrace().emit("priority.choice", child=Costly())


def test_sinks_hear_all_events_whatever_the_levels_are() -> None:
    trace, heard = LogTrace(), list[Event]()
    unsubscribe = trace.subscribe(heard.append)
    assert is_active(trace)
    trace.emit("dns.look_up", host="a")
    unsubscribe()
    assert not is_active(trace)
    trace.emit("dns.look_up", host="b")
    assert [event.fields["host"] for event in heard] == ["a"]


def test_an_event_of_a_policy_that_we_do_not_know_has_a_logger_too(
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


def test_an_event_is_one_line_whatever_is_in_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "proxyless.resolver.dns")
    status = Status(StatusCode.UNAVAILABLE, "no\nsuch host")
    addresses = (IpAddress("10.0.0.1", 80), IpAddress("::1", 80))
    LogTrace().emit("dns.answer", host="a\nb", status=status, endpoints=addresses, number=1.5)
    assert caplog.records[0].getMessage() == (
        r'dns.answer host="a\nb" status=UNAVAILABLE: no such host'
        " endpoints=[10.0.0.1:80, [::1]:80] number=1.5"
    )


# ---------------------------------------------------------------------------------------------
# What the environment asks for


@pytest.mark.parametrize(
    ("asked", "chosen"),
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
def test_tracers_are_chosen_in_the_order_of_the_list(asked: list[str], chosen: set[str]) -> None:
    assert choose_tracers(asked) == (chosen, [])


def test_names_that_nobody_knows_are_told_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apply_environment({"GRPC_TRACE": "xds_clint,nonsense\n,,xds_client"})
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == (
        'GRPC_TRACE names tracers that nobody knows: "xds_clint", "nonsense"'
    )
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


def test_a_verbosity_that_is_none_is_told_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apply_environment({"GRPC_VERBOSITY": "LOUD"})
    assert [record.getMessage() for record in caplog.records] == [
        'GRPC_VERBOSITY is "LOUD", wanted DEBUG, INFO, ERROR, NONE'
    ]
    assert logging.getLogger("proxyless").level == logging.NOTSET


def test_with_tracers_named_the_rest_does_not_trace() -> None:
    apply_environment({"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "priority_lb"})
    assert logging.getLogger("proxyless.lb.priority").isEnabledFor(logging.DEBUG)
    rest = logging.getLogger("proxyless.xds.client")
    assert rest.getEffectiveLevel() == logging.INFO


def test_verbosity_none_means_no_tracers_either() -> None:
    apply_environment({"GRPC_VERBOSITY": "NONE", "GRPC_TRACE": "all"})
    assert not LogTrace().active


def test_who_asks_for_logs_sees_them_without_configuring_anything(
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


def test_threads_that_ask_at_once_add_one_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    both = threading.Barrier(2)

    class Slow(logging.StreamHandler[TextIO]):
        def __init__(self, stream: TextIO) -> None:
            super().__init__(stream)
            both.wait()

    monkeypatch.setattr(logs, "_HANDLERS", {})
    monkeypatch.setattr(logging, "StreamHandler", Slow)
    asked = {"GRPC_VERBOSITY": "INFO"}
    threads = [threading.Thread(target=apply_environment, args=(asked,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in ours.handlers] == [logging.NullHandler, Slow]


def test_handlers_of_the_application_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    logging.getLogger().handlers.append(logging.NullHandler())
    apply_environment({"GRPC_VERBOSITY": "INFO"})
    assert len(ours.handlers) == 1


def test_without_the_variables_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bare(monkeypatch)
    apply_environment({"GRPC_TRACE": " , ", "GRPC_VERBOSITY": ""})
    assert (ours.level, len(ours.handlers)) == (logging.NOTSET, 1)


def test_every_tracer_leads_to_a_logger_that_says_something() -> None:
    assert set(TRACERS.values()) <= set(LOGGER_NAMES.values())
