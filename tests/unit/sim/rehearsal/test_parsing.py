"""Unit tests of proxyless.sim.rehearsal.parsing: documents in, scripts or errors out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode, ValidationErrors
from proxyless.controlplane import ENDPOINTS
from proxyless.sim import UNARY
from proxyless.sim.rehearsal.parsing import (
    CLIENTS_MAX,
    DURATION_MAX_S,
    EVENTS_MAX,
    RATE_MAX,
    RPCS_MAX,
    parse_script,
)
from proxyless.sim.rehearsal.script import (
    Condition,
    ControlFault,
    ControlFaultAction,
    Event,
    Expectation,
    Fault,
    FaultAction,
    Flow,
    Push,
    Script,
    Selector,
)


def parse(text: str) -> Script:
    errors = ValidationErrors()
    script = parse_script(yaml.safe_load(text), errors)
    assert errors.ok, str(errors)
    return script


def refuse(text: str) -> list[tuple[str, str]]:
    errors = ValidationErrors()
    parse_script(yaml.safe_load(text), errors)
    return list(errors.items())


# Traffic


def test_empty_script_expects_a_minute_without_failures() -> None:
    script = parse("")
    assert script.flows == (Flow(),)
    assert script.duration_s == 60.0
    assert script.methods == (UNARY,)
    assert [each.condition for each in script.expectations] == [Condition.FAILED]
    # With events, expectations must be given.
    assert parse("events: [{at: 1s, kill: all}]").expectations == ()


def test_top_level_keys_are_defaults_of_traffic() -> None:
    script = parse(
        """
        target: [xds:///a, xds:///b]
        method: /s/m
        clients: 3
        rate: 5
        timeout: 2s
        metadata: {user: ann}
        seed: 7
        latency: 5ms
        traffic:
          - {name: writes, method: /s/w, wait_for_ready: true}
          - {session: true, metadata: {}, clients: 9, target: xds:///c}
        """
    )
    base = Flow(
        name="writes",
        targets=("xds:///a", "xds:///b"),
        methods=("/s/w",),
        clients=3,
        rate=5.0,
        timeout_s=2.0,
        metadata=(("user", "ann"),),
        wait_for_ready=True,
    )
    other = Flow(
        name="traffic-2",
        targets=("xds:///c",),
        methods=("/s/m",),
        clients=9,
        rate=5.0,
        timeout_s=2.0,
        has_sessions=True,
    )
    assert script.flows == (base, other)
    assert (script.seed, script.latency_s, script.clients) == (7, 0.005, 9)
    assert script.methods == ("/s/w", "/s/m")


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("target: dns:///x", "target", "is 'dns:///x', wanted xds:///name"),
        ("target: 'xds:///'", "target", "is 'xds:///', wanted xds:///name"),
        ("target: xds://authority/x", "target", "wanted xds:///name"),
        ("method: s/m", "method", "is 's/m', wanted /package.Service/Method"),
        ("method: /s/", "method", "wanted /package.Service/Method"),
        ("metadata: {A: x}", "metadata", "metadata key 'A' is not valid"),
        ("metadata: {a: 1}", "metadata", "'a' is 1, wanted a text in quotes"),
        ("metadata: {a-bin: x}", "metadata", "'a-bin' cannot be given here"),
        ("metadata: [a]", "metadata", "is a list, wanted a mapping of texts"),
        ("options: {grpc.keepalive_time_ms: x}", "options", "is 'x', wanted an integer"),
        ("options: {grpc.no_such_thing: 1}", "options", "there is no option"),
        ("options: 1", "options", "is 1, wanted a mapping of channel options"),
        ("dns: {db: nowhere}", 'dns["db"]', "is 'nowhere', wanted an IP address"),
        ("dns: [db]", "dns", "is a list, wanted a mapping"),
        ("clients: 0", "clients", f"wanted a whole number from 1 to {CLIENTS_MAX}"),
        ("rate: 1000000", "rate", f"at most {RATE_MAX:g}"),
        ("duration: 1000h", "duration", f"wanted 0:01 to {DURATION_MAX_S / 3600:.0f}:00:00"),
        ("timeout: 0s", "timeout", "wanted 0:00.001 to 10:00"),
        ("{rate: 10000, duration: 1m}", "", "asks for 600000 RPCs (rate times duration), wanted"),
        ("traffic: {name: x}", "traffic", "is a mapping, wanted a list"),
        ("traffic: [{name: x}, {name: x}]", "traffic[1].name", "which is there already"),
        ("traffic: [{duration: 5s}]", "traffic[0].duration", "is not known"),
        ("metod: /s/m", "metod", "is not known, wanted one of duration, target,"),
        ("[]", "", "is a list, wanted a mapping"),
    ],
)
def test_traffic_error_has_its_path(text: str, path: str, message: str) -> None:
    ((found, words),) = refuse(text)
    assert found == path
    assert message in words


def test_maximum_number_of_rpcs_is_valid() -> None:
    script = parse(f"{{rate: {RPCS_MAX // 100}, duration: 100s}}")
    assert script.flows[0].rate * script.duration_s == RPCS_MAX


def test_options_and_dns_are_parsed() -> None:
    script = parse("{options: {grpc.keepalive_time_ms: 10}, dns: {db: 10.9.0.1, gone: []}}")
    assert script.options == (("grpc.keepalive_time_ms", 10),)
    assert script.dns == {"db": ("10.9.0.1",), "gone": ()}


# Events


def action(text: str) -> Any:  # noqa: ANN401 - compared with what it should be
    (event,) = parse(f"events: [{{at: 1s, {text}}}]").events
    return event.action


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        ("kill: {zone: a}", FaultAction(Fault.KILL, Selector(zones=("a",))), "kill zone a"),
        (
            "stop: {endpoint: ['1.1.1.1:1', '1.1.1.2:1']}",
            FaultAction(Fault.STOP, Selector(endpoints=("1.1.1.1:1", "1.1.1.2:1"))),
            "stop endpoint 1.1.1.1:1, 1.1.1.2:1",
        ),
        (
            "hang: {cluster: cart, region: eu}",
            FaultAction(Fault.HANG, Selector(regions=("eu",), clusters=("cart",))),
            "hang region eu in cluster cart",
        ),
        ("lose_power: all", FaultAction(Fault.LOSE_POWER, Selector()), "lose power all endpoints"),
        (
            "throttle: {all: true, bytes_per_s: 100}",
            FaultAction(Fault.THROTTLE, Selector(), bytes_per_s=100.0),
            "throttle all endpoints to 100 bytes per second",
        ),
        (
            "slow: {zone: a, by: 200ms}",
            FaultAction(Fault.SLOW, Selector(zones=("a",)), delay_s=0.2),
            "slow zone a by 0.2 s",
        ),
        (
            "fail: {zone: a, with: INTERNAL}",
            FaultAction(Fault.FAIL, Selector(zones=("a",)), code=StatusCode.INTERNAL),
            "fail zone a with INTERNAL",
        ),
        (
            "control_plane: break_streams",
            ControlFaultAction(ControlFault.BREAK_STREAMS),
            "control plane: break streams",
        ),
        (
            "control_plane: {delay: 2s}",
            ControlFaultAction(ControlFault.DELAY, 2.0),
            "control plane: delay of 2 s",
        ),
        (
            "control_plane: {withhold: endpoints}",
            ControlFaultAction(ControlFault.WITHHOLD, type_url=ENDPOINTS),
            "control plane: withhold endpoints",
        ),
        (
            "control_plane: {withhold: {endpoints: [a, b]}}",
            ControlFaultAction(ControlFault.WITHHOLD, type_url=ENDPOINTS, names=("a", "b")),
            "control plane: withhold endpoints a, b",
        ),
        ("push: [a, b]", Push(("a", "b")), "push a, b"),
    ],
)
def test_action_is_parsed_and_shown(text: str, wanted: object, message: str) -> None:
    found = action(text)
    assert found == wanted
    assert str(found) == message


def test_every_fault_is_parsed() -> None:
    extra = {
        Fault.THROTTLE: ", bytes_per_s: 1",
        Fault.SLOW: ", by: 1s",
        Fault.FAIL: ", with: ABORTED",
    }
    for fault in Fault:
        found = action(f"{fault.value}: {{zone: a{extra.get(fault, '')}}}")
        assert found.fault is fault


def test_events_are_sorted_and_lasting_ones_have_an_end() -> None:
    script = parse(
        """
        events:
          - {at: 00:30, kill: {zone: a}, for: 20s}
          - {at: 10s, control_plane: stop, for: 1s}
          - {at: 40s, push: next}
        """
    )
    where = Selector(zones=("a",))
    start = ControlFaultAction(ControlFault.START, undoes=ControlFault.STOP)
    end = FaultAction(Fault.START, where, undoes=Fault.KILL)
    assert script.events == (
        Event(10.0, ControlFaultAction(ControlFault.STOP), "events[1].control_plane"),
        Event(11.0, start, "events[1].control_plane", is_end=True),
        Event(30.0, FaultAction(Fault.KILL, where), "events[0].kill"),
        Event(40.0, Push(("next",)), "events[2].push"),
        Event(50.0, end, "events[0].kill", is_end=True),
    )
    assert script.pushes == (Push(("next",)),)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("{kill: all}", "events[0].at", "is missing"),
        ("{at: 2m, kill: all}", "events[0].at", "is '2m', which is 2:00, wanted 0:00 to 1:00"),
        ("{at: 1s}", "events[0]", "has no action, wanted one of kill,"),
        ("{at: 1s, kill: all, stop: all}", "events[0]", "has kill and stop, wanted one of"),
        ("{at: 1s, kill: all, to: 2}", "events[0].to", "is not known"),
        ("{at: 1s, kill: a}", "events[0].kill", "is 'a', wanted a mapping such as {zone: a}"),
        ("{at: 1s, kill: {}}", "events[0].kill", "wanted endpoint, zone, region or cluster"),
        ("{at: 1s, kill: {all: true, zone: a}}", "events[0].kill", "or all: true"),
        ("{at: 1s, kill: {zone: no}}", "events[0].kill.zone", "is False, wanted a text"),
        ("{at: 1s, kill: {zone: [a, on]}}", "events[0].kill.zone", "has True, wanted texts"),
        ("{at: 1s, kill: all, for: 2m}", "events[0].for", "wanted 0:00 to 0:59"),
        ("{at: 1s, reset: all, for: 1s}", "events[0].for", "makes no sense here"),
        ("{at: 1s, push: a, for: 1s}", "events[0].for", "makes no sense here"),
        ("{at: 1s, push: {}}", "events[0].push", "is a mapping, wanted a text"),
        (
            "{at: 1s, fail: {all: true, with: OK}}",
            "events[0].fail.with",
            "is 'OK', wanted the name",
        ),
        ("{at: 1s, throttle: all}", "events[0].throttle", "is 'all', wanted a mapping"),
        (
            "{at: 1s, control_plane: die}",
            "events[0].control_plane",
            "is 'die', wanted one of stop,",
        ),
        ("{at: 1s, control_plane: {dely: 1s}}", "events[0].control_plane.dely", "is not known"),
        (
            "{at: 1s, control_plane: {withhold: cats}}",
            "events[0].control_plane.withhold",
            "wanted one of listeners, routes, clusters, endpoints",
        ),
        ("kill", "events[0]", "is 'kill', wanted a mapping"),
    ],
)
def test_event_error_has_its_path(text: str, path: str, message: str) -> None:
    found = refuse(f"events: [{text}]")
    assert path in [where for where, _ in found]
    assert message in dict(found)[path]


def test_too_many_events_are_an_error() -> None:
    errors = ValidationErrors()
    parse_script({"events": [{"at": 1, "kill": "all"}] * (EVENTS_MAX + 1)}, errors)
    ((path, text),) = errors.items()
    assert (path, text) == ("events", f"has {EVENTS_MAX + 1} entries, wanted at most {EVENTS_MAX}")


# Expectations


def test_expectations_have_windows_and_one_entry_may_have_several() -> None:
    script = parse(
        """
        traffic: [{name: reads}]
        expect:
          - {failed: 3, error_rate_below: 1%, from: 10s, to: 20s}
          - {failover_within: 5s, slowest_below: 200ms, traffic: reads}
          - {only_zones: a, only_clusters: [b], only_endpoints: ["1.1.1.1:1"]}
          - {only_codes: [UNAVAILABLE], refused_configs: 0}
        """
    )
    assert script.expectations == (
        Expectation(Condition.FAILED, 10.0, 20.0, 3, path="expect[0]"),
        Expectation(Condition.ERROR_RATE_BELOW, 10.0, 20.0, 0.01, path="expect[0]"),
        Expectation(Condition.FAILOVER_WITHIN, 0.0, 60.0, 5.0, (), "reads", "expect[1]"),
        Expectation(Condition.SLOWEST_BELOW, 0.0, 60.0, 0.2, (), "reads", "expect[1]"),
        Expectation(Condition.ONLY_ZONES, 0.0, 60.0, 0.0, ("a",), path="expect[2]"),
        Expectation(Condition.ONLY_CLUSTERS, 0.0, 60.0, 0.0, ("b",), path="expect[2]"),
        Expectation(Condition.ONLY_ENDPOINTS, 0.0, 60.0, 0.0, ("1.1.1.1:1",), path="expect[2]"),
        Expectation(Condition.ONLY_CODES, 0.0, 60.0, 0.0, ("UNAVAILABLE",), path="expect[3]"),
        Expectation(Condition.REFUSED_CONFIGS, 0.0, 60.0, 0, path="expect[3]"),
    )


def test_single_expectation_needs_no_list() -> None:
    (expectation,) = parse("expect: {failed: 0}").expectations
    assert expectation == Expectation(Condition.FAILED, 0.0, 60.0, 0, path="expect")


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("{}", "expect[0]", "has no condition, wanted failed, error_rate_below,"),
        ("{failed: 0, from: 20s, to: 10s}", "expect[0].to", "is 0:10, wanted more than 0:20"),
        ("{failed: -1}", "expect[0].failed", "wanted a whole number from 0"),
        ("{failed: 0, traffic: x}", "expect[0].traffic", "is 'x', wanted one of traffic"),
        ("{error_rate_below: 2}", "expect[0].error_rate_below", "is 2, wanted a number above 0"),
        (
            "{only_codes: [NOPE]}",
            "expect[0].only_codes",
            "has 'NOPE', wanted names of status codes",
        ),
        ("{only_zone: a, failed: 0}", "expect[0].only_zone", "is not known"),
    ],
)
def test_expectation_error_has_its_path(text: str, path: str, message: str) -> None:
    found = refuse(f"expect: [{text}]")
    assert [where for where, _ in found] == [path]
    assert message in found[0][1]


KEYS = (
    "target", "method", "rate", "duration", "events", "expect", "traffic", "at", "kill", "zone",
    "control_plane", "withhold", "for", "failed", "only_zones", "dns", "metadata", "options",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("5s"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_document_is_a_script_or_errors(document: dict[str, object]) -> None:
    errors = ValidationErrors()
    script = parse_script(document, errors)
    assert script.duration_s * sum(flow.rate for flow in script.flows) <= RPCS_MAX or not errors.ok


@pytest.mark.parametrize(
    "method", ["shop", "/shop", "/shop/", "//m", "/shop/Käse", '"/s/m\\n"', "/s /m"]
)
def test_invalid_method_is_an_error(method: str) -> None:
    ((path, text),) = refuse(f"method: {method}")
    assert path == "method"
    assert text.endswith("wanted /package.Service/Method")


def test_empty_traffic_is_an_error() -> None:
    assert refuse("traffic: []") == [
        ("traffic", "is a list, wanted at least one kind of RPCs in it")
    ]


def test_huge_option_is_an_error() -> None:
    ((path, _),) = refuse(f"options: {{grpc.keepalive_time_ms: 0x{'f' * 290}}}")
    assert path == "options"


def test_huge_rate_is_an_error() -> None:
    ((path, text),) = refuse(f"rate: 0x{'f' * 290}")
    assert path == "rate"
    assert text.endswith("wanted a number above 0, at most 10000")
