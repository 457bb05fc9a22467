"""Story: the plan of a re-run, derived from a recording (pure).

Config steps come from recorded resources, without TLS, which the simulated network does not have;
addresses of LOGICAL_DNS clusters come from recorded answers. Whether a backend was up comes from
the connection attempts to it: one that succeeded shows that it was up when the attempt began, one
that failed that it was not, and a lost connection that it went away. RPCs are the recorded samples.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import field, replace
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from proxyless.base import Address, IpAddress, State, parse_address, quote
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LISTENER, Resource
from proxyless.observe.flight.recording import RESOURCE_EVENT, RPC_EVENT
from proxyless.protos import DECODE_ERRORS, message_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxyless.observe.flight import Entry, Recording

_XDS: Final = "xds:"
_FEDERATED: Final = "xdstp:"
_TYPE_PREFIX: Final = "type.googleapis.com/"
# An attempt that fails later got no answer; one that fails earlier was refused.
REFUSED_WITHIN_S: Final = 1.0
# A re-run is limited, because a recording may come from anywhere.
BACKENDS_MAX: Final = 5_000
DURATION_MAX_S: Final = 7 * 24 * 3600.0


class UnsuitableRecordingError(ValueError):
    """A recording that cannot be re-run, with the reason."""


@frozen
class ConfigStep:
    """The resources that the control plane serves from a time on."""

    at_s: float
    resources: tuple[Resource, ...]


@frozen
class BackendStep:
    """A change of a backend."""

    at_s: float
    address: Address
    is_up: bool
    # Whether it is silent instead of refusing connections.
    is_silent: bool = False
    # Whether the client tries to connect now.
    is_retried: bool = False


@frozen
class NameStep:
    """An answer of DNS; empty if the lookup failed."""

    at_s: float
    host: str
    ips: tuple[str, ...]


@frozen
class RpcStep:
    """A recorded RPC."""

    at_s: float
    ended_s: float
    target: str
    path: str
    cluster: str
    address: str
    code: str


@frozen
class WakeStep:
    """A channel that leaves IDLE."""

    at_s: float
    target: str


Step: TypeAlias = ConfigStep | BackendStep | NameStep | RpcStep | WakeStep


@frozen
class Story:
    """The plan of a re-run."""

    start_s: float
    end_s: float
    # Targets by listener.
    targets: Mapping[str, str]
    configs: tuple[ConfigStep, ...]
    backends: tuple[BackendStep, ...]
    names: tuple[NameStep, ...]
    rpcs: tuple[RpcStep, ...]
    wakes: tuple[WakeStep, ...]
    addresses: frozenset[Address]
    notes: tuple[str, ...] = field(default=())


def make_story(recording: Recording) -> Story:
    """The plan of a re-run. Raises UnsuitableRecordingError with the reason why there is none."""
    entries = recording.entries
    resources = [each for each in entries if each.event == RESOURCE_EVENT]
    if not resources:
        raise UnsuitableRecordingError("it has no resources")
    if any(str(each.fields.get("name")).startswith(_FEDERATED) for each in resources):
        raise UnsuitableRecordingError("it has resources of several authorities")
    start_s = min(entry.time for entry in entries)
    end_s = max(entry.time for entry in entries) - start_s
    if end_s > DURATION_MAX_S:
        raise UnsuitableRecordingError("it covers more than a week")
    configs = tuple(_config_steps(resources, start_s))
    hosts = dict(_dns_hosts(configs))
    names = tuple(_name_steps(entries, start_s, hosts))
    addresses = frozenset([*_endpoint_addresses(configs), *_addresses_of_names(names, hosts)])
    if len(addresses) > BACKENDS_MAX:
        raise UnsuitableRecordingError(f"it has more than {BACKENDS_MAX} endpoints")
    channels = dict(_channels(recording))
    targets = _targets_by_listener(resources, set(channels.values()))
    if not targets:
        raise UnsuitableRecordingError("it has no channel with an xDS target")
    return Story(
        start_s,
        end_s,
        targets,
        configs,
        tuple(_backend_steps(entries, start_s, addresses)),
        names,
        tuple(_rpc_steps(entries, start_s, channels)),
        tuple(_wake_steps(entries, start_s, targets)),
        addresses,
        tuple(_list_notes(recording)),
    )


def _channels(recording: Recording) -> Iterator[tuple[int, str]]:
    """IDs and targets of the channels with an xDS target."""
    match recording.header:
        case {"channels": [*channels]}:
            for channel in channels:
                match channel:
                    case {"id": int(number), "target": str(target)} if target.startswith(_XDS):
                        yield number, target
                    case _:
                        pass
        case _:
            pass


def _list_notes(recording: Recording) -> Iterator[str]:
    if recording.left_out:
        yield f"{recording.left_out} older entries were displaced; the re-run starts without them"
    if recording.is_cut:
        yield "the end of the file is missing"
    if any(each.event.startswith("outlier_detection.") for each in recording.entries):
        yield "ejections depend on every RPC, and samples are re-run: they are not compared"


# Config


def _config_steps(resources: Sequence[Entry], start_s: float) -> Iterator[ConfigStep]:
    served: dict[tuple[str, str], Resource] = {}
    for entry, following in pairwise([*resources, None]):
        assert entry is not None, "only the last is None"
        resource = _read_resource(entry)
        key = (resource.type_url, resource.name)
        if resource.value:
            served[key] = resource
        else:
            served.pop(key, None)
        if following is None or following.time > entry.time:
            yield ConfigStep(entry.time - start_s, tuple(served.values()))


def _read_resource(entry: Entry) -> Resource:
    match entry.fields:
        case {"type_url": str(type_url), "name": str(name), "value": str(value)}:
            try:
                return _without_tls(Resource(type_url, name, b64decode(value, validate=True)))
            except (Base64Error, *DECODE_ERRORS):
                pass
        case _:
            pass
    raise UnsuitableRecordingError(f"entry {entry.number}: the resource cannot be read")


def _without_tls(resource: Resource) -> Resource:
    """Without names of certificate providers, which the bootstrap of a re-run does not have."""
    if resource.type_url != CLUSTER or not resource.value:
        return resource
    message = resource.message()
    message.ClearField("transport_socket")
    return replace(resource, value=message.SerializeToString(deterministic=True))


def _dns_hosts(configs: Sequence[ConfigStep]) -> Iterator[tuple[str, int]]:
    """Names and ports of LOGICAL_DNS clusters."""
    clusters = {
        each.value for step in configs for each in step.resources if each.type_url == CLUSTER
    }
    for message in map(message_class(CLUSTER.removeprefix(_TYPE_PREFIX)).FromString, clusters):
        if message.type == message.LOGICAL_DNS:
            for group in message.load_assignment.endpoints:
                for each in group.lb_endpoints:
                    socket = each.endpoint.address.socket_address
                    yield socket.address, socket.port_value


def _name_steps(
    entries: Sequence[Entry], start_s: float, hosts: Mapping[str, int]
) -> Iterator[NameStep]:
    for entry in entries:
        match entry.event, entry.fields:
            case "dns.answer", {"host": str(host), "endpoints": found} if host in hosts:
                texts = found if isinstance(found, list) else []
                addresses = [_parse(str(text)) for text in texts]
                ips = [each.host for each in addresses if isinstance(each, IpAddress)]
                yield NameStep(entry.time - start_s, host, tuple(ips))
            case _:
                pass


def _addresses_of_names(names: Sequence[NameStep], hosts: Mapping[str, int]) -> Iterator[Address]:
    for step in names:
        for ip in step.ips:
            yield IpAddress(ip, hosts[step.host])


def _parse(text: str) -> Address | None:
    try:
        return parse_address(text)
    except ValueError:
        return None


def _endpoint_addresses(configs: Sequence[ConfigStep]) -> Iterator[Address]:
    load_assignment = message_class(ENDPOINTS.removeprefix(_TYPE_PREFIX))
    seen: set[bytes] = set()
    for resource in (each for step in configs for each in step.resources):
        if resource.type_url != ENDPOINTS or resource.value in seen:
            continue
        seen.add(resource.value)
        try:
            message = load_assignment.FromString(resource.value)
        except DECODE_ERRORS:
            text = f"endpoints {quote(resource.name)} cannot be read"
            raise UnsuitableRecordingError(text) from None
        for group in message.endpoints:
            for each in group.lb_endpoints:
                yield from _addresses_of(each.endpoint)


def _addresses_of(endpoint: Any) -> Iterator[Address]:  # noqa: ANN401 - a message
    more = [each.address for each in endpoint.additional_addresses]
    for address in (endpoint.address, *more):
        socket = address.socket_address
        host = f"[{socket.address}]" if ":" in socket.address else socket.address
        parsed = _parse(f"{host}:{socket.port_value}")
        if parsed is not None:
            yield parsed


def _targets_by_listener(resources: Sequence[Entry], targets: set[str]) -> dict[str, str]:
    """Targets by the listener that they use. A target's own client names it as its scope."""
    found: dict[str, str] = {}
    for fields in (each.fields for each in resources if each.fields["type_url"] == LISTENER):
        scope, name = str(fields.get("scope")), str(fields["name"])
        shared = next((each for each in sorted(targets) if each.endswith(f"/{name}")), "")
        if scope in targets:
            found[name] = scope
        elif shared:
            found.setdefault(name, shared)
    return found


# Backends


def _backend_steps(
    entries: Sequence[Entry], start_s: float, addresses: frozenset[Address]
) -> Iterator[BackendStep]:
    by_address: dict[Address, list[tuple[float, str]]] = {}
    for entry in entries:
        match entry.event, entry.fields:
            case "subchannel.state", {"address": str(text), "state": str(state)}:
                address = _known(text, addresses)
                if address is not None:
                    changes = by_address.setdefault(address, [])
                    changes.append((entry.time - start_s, state))
            case _:
                pass
    for address, changes in by_address.items():
        yield from _steps_of(address, changes)


def _known(text: str, addresses: frozenset[Address]) -> Address | None:
    address = _parse(text)
    return address if address in addresses else None


def _steps_of(address: Address, changes: Sequence[tuple[float, str]]) -> Iterator[BackendStep]:
    before = ""
    for (at_s, state), (next_s, following) in pairwise([*changes, (0.0, "")]):
        if state == State.CONNECTING.name and following == State.READY.name:
            yield BackendStep(at_s, address, is_up=True, is_retried=bool(before))
        elif state == State.CONNECTING.name and following == State.TRANSIENT_FAILURE.name:
            is_silent = next_s - at_s > REFUSED_WITHIN_S
            yield BackendStep(at_s, address, is_up=False, is_silent=is_silent)
        elif before == State.READY.name and state == State.IDLE.name:
            yield BackendStep(at_s, address, is_up=False)
        before = state


# RPCs and channels


def _rpc_steps(
    entries: Sequence[Entry], start_s: float, channels: Mapping[int, str]
) -> Iterator[RpcStep]:
    for entry in entries:
        if entry.event != RPC_EVENT:
            continue
        match entry.fields:
            case {
                "channel": int(channel),
                "method": str(path),
                "cluster": str(cluster),
                "status": {"code": str(code)},
                "took_s": int() | float() as took_s,
                **rest,
            } if channel in channels and isfinite(took_s) and _is_path(path):
                ended_s = entry.time - start_s
                began_s = max(ended_s - float(took_s), 0.0)
                address = str(rest.get("address") or "")
                yield RpcStep(began_s, ended_s, channels[channel], path, cluster, address, code)
            case _:
                pass


def _is_path(path: str) -> bool:
    return path.startswith("/") and path.isascii() and path.isprintable()


def _wake_steps(
    entries: Sequence[Entry], start_s: float, targets: Mapping[str, str]
) -> Iterator[WakeStep]:
    """Channels leave IDLE when they are first used, and after an idle timeout."""
    states: dict[str, str] = dict.fromkeys(targets.values(), State.IDLE.name)
    for entry in entries:
        match entry.event, entry.fields:
            case "channel.state", {"target": str(target), "state": str(state)}:
                if target in states:
                    if states[target] == State.IDLE.name:
                        yield WakeStep(entry.time - start_s, target)
                    states[target] = state
            case _:
                pass
    # Without their start, channels are in use from the beginning.
    for target in states:
        yield WakeStep(0.0, target)
