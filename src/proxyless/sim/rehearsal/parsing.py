"""Parser of scripts: makes a `Script` of a document, and collects its errors by path.

`controlplane.documents` reads the text. Unknown keys are errors, and all sizes have a limit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode, validate_metadata
from proxyless.controlplane.proto_json import describe_value
from proxyless.front.options import read_options
from proxyless.resolver.target import parse_target
from proxyless.sim.backends import RPC_ID
from proxyless.sim.links import LATENCY_S
from proxyless.sim.rehearsal.fields import Fields, show_time
from proxyless.sim.rehearsal.script import (
    TYPES,
    Action,
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.base import ValidationErrors

# Limits, against mistyped numbers.
DURATION_MAX_S: Final = 24 * 3600.0
RPCS_MAX: Final = 100_000
RATE_MAX: Final = 10_000.0
CLIENTS_MAX: Final = 100
TIMEOUT_MAX_S: Final = 600.0
LATENCY_MAX_S: Final = 10.0
FLOWS_MAX: Final = 20
EVENTS_MAX: Final = 1_000
EXPECTATIONS_MAX: Final = 200

# Printable ASCII, which `:path` is limited to.
_METHOD: Final = re.compile("/[!-.0-~]+/[!-~]+").fullmatch
_SEED_MAX: Final = 2**63 - 1
_BYTES_PER_S_MAX: Final = 1e12

# Faults that may have a `for`, and the fault that ends each.
_ENDS: Final = {
    **dict.fromkeys((Fault.KILL, Fault.STOP, Fault.LOSE_POWER), Fault.START),
    **dict.fromkeys((Fault.HANG, Fault.CUT, Fault.THROTTLE, Fault.SLOW, Fault.FAIL), Fault.HEAL),
}
_CONTROL_ENDS: Final = {
    ControlFault.STOP: ControlFault.START,
    **dict.fromkeys(
        (ControlFault.CUT, ControlFault.HANG, ControlFault.DELAY, ControlFault.WITHHOLD),
        ControlFault.HEAL,
    ),
}


def parse_script(document: object, errors: ValidationErrors) -> Script:
    """Parse a script. The result is only valid if no error was added."""
    fields = Fields({} if document is None else document, errors)
    duration_s = fields.seconds("duration", 60.0, low=1.0, high=DURATION_MAX_S)
    script = Script(
        flows=_parse_flows(fields),
        duration_s=duration_s,
        seed=fields.integer("seed", 0, low=0, high=_SEED_MAX),
        latency_s=fields.seconds("latency", LATENCY_S, high=LATENCY_MAX_S),
        options=_parse_options(fields),
        dns=_parse_dns(fields),
        events=_parse_events(fields, duration_s),
    )
    flows = tuple(flow.name for flow in script.flows)
    expectations = _parse_expectations(fields, duration_s, flows)
    if not script.events and not expectations:
        # Without events, no RPC may fail.
        expectations = (Expectation(Condition.FAILED, 0.0, duration_s, path="expect"),)
    script = replace(script, expectations=expectations)
    fields.refuse_others()
    rpcs = sum(flow.rate for flow in script.flows) * duration_s
    if rpcs > RPCS_MAX:
        errors.add(f"asks for {rpcs:.0f} RPCs (rate times duration), wanted at most {RPCS_MAX}")
    return script


def _parse_flows(fields: Fields) -> tuple[Flow, ...]:
    """The entries of `traffic`; keys at the top of the script are their defaults."""
    base = _parse_flow(fields, Flow())
    entries = _list(fields, "traffic", FLOWS_MAX)
    if entries is None:
        return (base,)
    errors = fields.errors
    if fields.get("traffic") == []:
        fields.refuse("traffic", "wanted at least one kind of RPCs in it")
    flows: list[Flow] = []
    for number, entry in enumerate(entries):
        with errors.field("traffic"), errors.index(number):
            inner = Fields(entry, errors)
            flow = _parse_flow(inner, replace(base, name=f"traffic-{number + 1}"))
            flow = replace(flow, name=inner.text("name", flow.name))
            inner.refuse_others()
            if flow.name in (each.name for each in flows):
                inner.add("name", f"is {flow.name!r}, which is there already")
            flows.append(flow)
    return tuple(flows)


def _parse_flow(fields: Fields, base: Flow) -> Flow:
    flow = replace(
        base,
        targets=fields.texts("target", base.targets),
        clients=fields.integer("clients", base.clients, low=1, high=CLIENTS_MAX),
        rate=fields.number("rate", base.rate, high=RATE_MAX),
        methods=fields.texts("method", base.methods),
        metadata=_parse_metadata(fields, base.metadata),
        timeout_s=fields.seconds("timeout", base.timeout_s, low=0.001, high=TIMEOUT_MAX_S),
        wait_for_ready=fields.flag("wait_for_ready", default=base.wait_for_ready),
        has_sessions=fields.flag("session", default=base.has_sessions),
    )
    for target in flow.targets:
        if not _is_target(target):
            fields.add("target", f"is {target!r}, wanted xds:///name")
    for method in flow.methods:
        if not _METHOD(method):
            fields.add("method", f"is {method!r}, wanted /package.Service/Method")
    return flow


def _is_target(text: str) -> bool:
    """Whether it is an xds target. Targets with an authority would need another control plane."""
    try:
        target = parse_target(text, {"xds"})
    except ValueError:
        return False
    return target.scheme == "xds" and not target.authority and bool(target.name)


def _parse_metadata(
    fields: Fields, default: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    value = fields.mapping("metadata", "wanted a mapping of texts")
    if value is None:
        return default
    pairs: list[tuple[str, str]] = []
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            what = f"{describe_value(key)} is {describe_value(text)}, wanted a text in quotes"
            fields.add("metadata", what)
        elif key == RPC_ID or key.endswith("-bin"):
            fields.add("metadata", f"{key!r} cannot be given here")
        else:
            pairs.append((key, text))
    try:
        validate_metadata(pairs)
    except ValueError as error:
        fields.add("metadata", str(error))
    return tuple(pairs)


def _parse_options(fields: Fields) -> tuple[tuple[str, object], ...]:
    pairs = tuple((fields.mapping("options", "wanted a mapping of channel options") or {}).items())
    with fields.errors.field("options"):
        for pair in pairs:
            try:
                if not read_options([pair]):
                    fields.errors.add(f"there is no option {pair[0]!r}")
            except (ArithmeticError, TypeError, ValueError) as error:
                fields.errors.add(str(error))
    return pairs


def _parse_dns(fields: Fields) -> dict[str, tuple[str, ...]]:
    value = fields.mapping("dns", "wanted a mapping from names to lists of IP addresses") or {}
    found: dict[str, tuple[str, ...]] = {}
    with fields.errors.field("dns"):
        for name, addresses in value.items():
            with fields.errors.key(str(name)):
                listed = addresses if isinstance(addresses, list) else [addresses]
                found[str(name)] = tuple(_parse_ips(listed, fields.errors))
    return found


def _parse_ips(addresses: list[object], errors: ValidationErrors) -> Iterator[str]:
    for each in addresses:
        try:
            yield str(ip_address(each if isinstance(each, str) else ""))
        except ValueError:
            errors.add(f"is {describe_value(each)}, wanted an IP address")


def _parse_events(fields: Fields, duration_s: float) -> tuple[Event, ...]:
    events: list[Event] = []
    for number, entry in enumerate(_list(fields, "events", EVENTS_MAX) or ()):
        with fields.errors.field("events"), fields.errors.index(number):
            events += _parse_event(entry, fields.errors, duration_s, f"events[{number}]")
    return tuple(sorted(events, key=lambda event: event.at_s))


def _parse_event(
    entry: object, errors: ValidationErrors, duration_s: float, path: str
) -> Iterator[Event]:
    """One event, or two if it has a `for`."""
    if not isinstance(entry, dict):
        errors.add(f"is {describe_value(entry)}, wanted a mapping")
        return
    fields = Fields(entry, errors)
    if "at" not in fields:
        fields.add("at", "is missing")
    at_s = fields.seconds("at", 0.0, high=duration_s)
    known = [*(fault.value for fault in Fault), "control_plane", "push"]
    given = [key for key in known if key in fields]
    lasts_s = fields.seconds("for", 0.0, high=duration_s - at_s) if "for" in fields else None
    fields.refuse_others()
    if len(given) != 1:
        errors.add(f"has {' and '.join(given) or 'no action'}, wanted one of {', '.join(known)}")
        return
    (key,) = given
    action = _parse_action(key, fields)
    if action is None:
        return
    yield Event(at_s, action, f"{path}.{key}")
    if lasts_s is not None:
        ended = _end_of(action)
        if ended is None:
            fields.add("for", f"makes no sense here: {key} is over at once")
        else:
            yield Event(at_s + lasts_s, ended, f"{path}.{key}", is_end=True)


def _end_of(action: Action) -> Action | None:
    match action:
        case FaultAction(fault=fault) if fault in _ENDS:
            return FaultAction(_ENDS[fault], action.where, undoes=fault)
        case ControlFaultAction(fault=control_fault) if control_fault in _CONTROL_ENDS:
            return ControlFaultAction(_CONTROL_ENDS[control_fault], undoes=control_fault)
        case _:
            return None


def _parse_action(key: str, fields: Fields) -> Action | None:
    if key == "push":
        paths = fields.texts("push")
        return Push(paths) if paths else None
    if key == "control_plane":
        return _parse_control_fault(fields)
    return _parse_fault(Fault(key), fields)


def _parse_fault(fault: Fault, fields: Fields) -> FaultAction | None:
    value = fields.get(fault.value)
    if value == "all" and fault not in {Fault.THROTTLE, Fault.SLOW, Fault.FAIL}:
        return FaultAction(fault, Selector())
    errors = fields.errors
    with errors.field(fault.value):
        if not isinstance(value, dict):
            errors.add(f"is {describe_value(value)}, wanted a mapping such as {{zone: a}}")
            return None
        inner = Fields(value, errors)
        action = FaultAction(fault, _parse_selector(inner))
        match fault:
            case Fault.THROTTLE:
                limit = inner.number("bytes_per_s", 1000.0, high=_BYTES_PER_S_MAX)
                action = replace(action, bytes_per_s=limit)
            case Fault.SLOW:
                action = replace(action, delay_s=inner.seconds("by", 1.0, high=TIMEOUT_MAX_S))
            case Fault.FAIL:
                action = replace(action, code=_parse_code(inner))
            case _:
                pass
        inner.refuse_others()
    return action


def _parse_selector(fields: Fields) -> Selector:
    found = Selector(
        endpoints=fields.texts("endpoint"),
        zones=fields.texts("zone"),
        regions=fields.texts("region"),
        clusters=fields.texts("cluster"),
    )
    is_all = fields.flag("all", default=False)
    if is_all == (found != Selector()):
        fields.errors.add("wanted endpoint, zone, region or cluster, or all: true")
    return found


def _parse_code(fields: Fields) -> StatusCode:
    name = fields.text("with", "UNAVAILABLE")
    if name not in StatusCode.__members__ or name == "OK":
        fields.refuse("with", "wanted the name of a status code such as UNAVAILABLE")
        return StatusCode.UNAVAILABLE
    return StatusCode[name]


def _parse_control_fault(fields: Fields) -> ControlFaultAction | None:
    value = fields.get("control_plane")
    plain = [each.value for each in ControlFault]
    plain = [name for name in plain if name not in {"delay", "withhold"}]
    if isinstance(value, str) and value in plain:
        return ControlFaultAction(ControlFault(value))
    if not isinstance(value, dict) or len(value) != 1:
        wanted = f"wanted one of {', '.join(plain)}, {{delay: 1s}} or {{withhold: endpoints}}"
        fields.refuse("control_plane", wanted)
        return None
    with fields.errors.field("control_plane"):
        inner = Fields(value, fields.errors)
        action = None
        if "delay" in inner:
            delay_s = inner.seconds("delay", 1.0, high=TIMEOUT_MAX_S)
            action = ControlFaultAction(ControlFault.DELAY, delay_s)
        elif "withhold" in inner:
            action = _parse_withhold(inner)
        inner.refuse_others()
    return action


def _parse_withhold(fields: Fields) -> ControlFaultAction | None:
    """A type, or a mapping from a type to names of resources."""
    value = fields.get("withhold")
    kind: object = value
    names: tuple[str, ...] = ()
    if isinstance(value, dict) and len(value) == 1:
        (kind,) = value
        with fields.errors.field("withhold"):
            names = Fields(value, fields.errors).texts(str(kind))
    if not isinstance(kind, str) or kind not in TYPES:
        fields.refuse("withhold", f"wanted one of {', '.join(TYPES)}")
        return None
    return ControlFaultAction(ControlFault.WITHHOLD, 0.0, TYPES[kind], names)


def _parse_expectations(
    fields: Fields, duration_s: float, flows: tuple[str, ...]
) -> tuple[Expectation, ...]:
    """One mapping, or a list of mappings; each may have several conditions."""
    if isinstance(fields.get("expect"), dict):
        with fields.errors.field("expect"):
            entry = fields.get("expect")
            return tuple(_parse_expectation(entry, fields.errors, duration_s, flows))
    found: list[Expectation] = []
    for number, entry in enumerate(_list(fields, "expect", EXPECTATIONS_MAX) or ()):
        with fields.errors.field("expect"), fields.errors.index(number):
            parsed = _parse_expectation(entry, fields.errors, duration_s, flows)
            found += [replace(each, path=f"expect[{number}]") for each in parsed]
    return tuple(found)


def _parse_expectation(
    entry: object, errors: ValidationErrors, duration_s: float, flows: tuple[str, ...]
) -> Iterator[Expectation]:
    fields = Fields(entry, errors)
    start_s = fields.seconds("from", 0.0, high=duration_s)
    end_s = fields.seconds("to", duration_s, high=duration_s)
    if start_s >= end_s:
        fields.add("to", f"is {show_time(end_s)}, wanted more than {show_time(start_s)}")
    flow = fields.text("traffic", "")
    if flow and flow not in flows:
        fields.refuse("traffic", f"wanted one of {', '.join(flows)}")
    given = [condition for condition in Condition if condition.value in fields]
    if not given:
        errors.add(f"has no condition, wanted {', '.join(each.value for each in Condition)}")
    for condition in given:
        limit, names = _parse_limit(condition, fields)
        yield Expectation(condition, start_s, end_s, limit, names, flow, "expect")
    fields.refuse_others()


def _parse_limit(condition: Condition, fields: Fields) -> tuple[float, tuple[str, ...]]:
    key = condition.value
    match condition:
        case Condition.FAILED | Condition.REFUSED_CONFIGS:
            return fields.integer(key, 0, low=0, high=RPCS_MAX), ()
        case Condition.ERROR_RATE_BELOW:
            return fields.share(key, 1.0), ()
        case Condition.FAILOVER_WITHIN | Condition.SLOWEST_BELOW:
            return fields.seconds(key, 0.0, high=DURATION_MAX_S), ()
        case Condition.ONLY_CODES:
            names = fields.texts(key)
            for name in names:
                if name not in StatusCode.__members__:
                    fields.add(key, f"has {name!r}, wanted names of status codes")
            return 0.0, names
        case Condition.ONLY_ZONES | Condition.ONLY_CLUSTERS | Condition.ONLY_ENDPOINTS:
            return 0.0, fields.texts(key)


def _list(fields: Fields, key: str, items_max: int) -> list[object] | None:
    """None if the key is missing; empty, and an error, if it is not a list."""
    if key not in fields:
        return None
    value = fields.get(key)
    if not isinstance(value, list):
        fields.refuse(key, "wanted a list")
        return []
    if len(value) > items_max:
        fields.add(key, f"has {len(value)} entries, wanted at most {items_max}")
        return []
    return value
