"""Which endpoints does a ClusterLoadAssignment list, and what is wrong with it?

Specs: A27-21 to A27-24 (localities, endpoints, drops), A61-01 (several addresses of an endpoint),
A76 (hash_key), A81 (hostname), A86 (proxies).

Endpoints that did not change since the last version of a resource are not parsed again (`parts`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from proxyless.base import Address, IpAddress, Locality, ValidationErrors
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.http_proxy import is_http_connect_known, parse_proxy_address
from proxyless.xds.parsing.limits import PRIORITIES_MAX
from proxyless.xds.parsing.parts import PartMemory
from proxyless.xds.parsing.proto_fields import UINT32_MAX, parse_fraction
from proxyless.xds.resources import (
    DropCategory,
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxyless.protos import Proto
    from proxyless.xds.client.api import DecodeContext, Decoded

CLUSTER_LOAD_ASSIGNMENT: Final = "envoy.config.endpoint.v3.ClusterLoadAssignment"

PORT_MAX: Final = 65535

# Values of envoy.config.core.v3.HealthStatus; endpoints of any other value are left out (A27-23).
HEALTH_STATUSES: Final[Mapping[int, HealthStatus]] = {
    0: HealthStatus.UNKNOWN,
    1: HealthStatus.HEALTHY,
    3: HealthStatus.DRAINING,
}


class EndpointType:
    """EDS. Driven by the xDS client."""

    type_url: Final = f"{TYPE_URL_PREFIX}{CLUSTER_LOAD_ASSIGNMENT}"
    # A response holds some of the resources.
    is_full_state: Final = False

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._memory: Final = PartMemory[EndpointInfo]()
        self._has_proxies: Final = is_http_connect_known(environ)

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[EndpointResource]:
        """The endpoints in these bytes, or why there are none. Raises nothing."""
        return decode_resource(
            CLUSTER_LOAD_ASSIGNMENT, serialized, self._parse, name_field="cluster_name"
        )

    def _parse(self, message: Proto, errors: ValidationErrors) -> EndpointResource:
        remembered = self._memory.parts_of(message.cluster_name)
        parts: dict[bytes, EndpointInfo] = {}
        resource = parse_endpoints(
            message, errors, remembered, parts, has_proxies=self._has_proxies
        )
        if errors.ok:
            self._memory.keep(resource.name, parts)
        return resource


def parse_endpoints(
    message: Proto,
    errors: ValidationErrors,
    remembered: Mapping[bytes, EndpointInfo] | None = None,
    parts: dict[bytes, EndpointInfo] | None = None,
    *,
    has_proxies: bool = True,
) -> EndpointResource:
    """The resource. Counts only if nothing was added to errors.

    `remembered` spares parsing endpoints whose bytes are known to be valid; all endpoints of this
    message are put into `parts`. Without `has_proxies` nobody looks for those (A86).
    """
    reader = _Reader(errors, remembered or {}, {} if parts is None else parts, has_proxies)
    with errors.field("endpoints"):
        priorities = reader.read_priorities(message.endpoints)
    with errors.field("policy.drop_overloads"):
        drops = tuple(_parse_drops(message.policy.drop_overloads, errors))
    return EndpointResource(name=message.cluster_name, priorities=priorities, drops=drops)


class _Reader:
    """Reads the localities of one message. Driven by `parse_endpoints`.

    Scopes of errors are entered once per endpoint and, further down, only where something is wrong.
    """

    def __init__(
        self,
        errors: ValidationErrors,
        remembered: Mapping[bytes, EndpointInfo],
        parts: dict[bytes, EndpointInfo],
        has_proxies: bool,
    ) -> None:
        # Fixed at construction.
        self._errors = errors
        self._remembered = remembered
        self._parts = parts
        self._has_proxies = has_proxies
        # Grows with each locality: "duplicate address anywhere" is an error (A27-22).
        self._addresses: set[Address] = set()

    def read_priorities(
        self, localities: Iterable[Proto]
    ) -> tuple[tuple[LocalityEndpoints, ...], ...]:
        by_priority: dict[int, dict[Locality, LocalityEndpoints]] = {}
        for index, message in enumerate(localities):
            weight = message.load_balancing_weight.value
            # Skipped without a look at the rest: it is assigned no load (A27-21).
            if weight == 0:
                continue
            with self._errors.index(index):
                members = by_priority.setdefault(message.priority, {})
                self._read_locality(message, weight, members)
        self._check_priorities(by_priority)
        return tuple(tuple(by_priority[priority].values()) for priority in sorted(by_priority))

    def _read_locality(
        self, message: Proto, weight: int, members: dict[Locality, LocalityEndpoints]
    ) -> None:
        where = message.locality
        locality = Locality(where.region, where.zone, where.sub_zone)
        if not message.HasField("locality"):
            _add(self._errors, "locality", "is missing")
        elif locality in members:
            self._errors.add(f"duplicate locality {locality} in priority {message.priority}")
        with self._errors.field("lb_endpoints"):
            endpoints = self._read_endpoints(message.lb_endpoints)
        proxy = None
        if self._has_proxies and message.HasField("metadata"):
            proxy = parse_proxy_address(message, self._errors)
        members[locality] = LocalityEndpoints(locality, weight, endpoints, proxy)

    def _read_endpoints(self, messages: Iterable[Proto]) -> tuple[EndpointInfo, ...]:
        errors, remembered, parts = self._errors, self._remembered, self._parts
        endpoints: list[EndpointInfo] = []
        for index, message in enumerate(messages):
            key = message.SerializeToString()
            endpoint = remembered.get(key)
            if endpoint is None:
                with errors.index(index):
                    endpoint = _parse_endpoint(message, errors, has_proxies=self._has_proxies)
                if endpoint is None:
                    continue
            parts[key] = endpoint
            for address in endpoint.addresses:
                if address in self._addresses:
                    with errors.index(index):
                        errors.add(f"duplicate address {address}")
                self._addresses.add(address)
            endpoints.append(endpoint)
        return tuple(endpoints)

    def _check_priorities(
        self, by_priority: Mapping[int, Mapping[Locality, LocalityEndpoints]]
    ) -> None:
        if len(by_priority) > PRIORITIES_MAX:
            self._errors.add(f"has {len(by_priority)} priorities, wanted at most {PRIORITIES_MAX}")
            return
        for expected, priority in enumerate(sorted(by_priority)):
            # They have to be contiguous (A27-21).
            if priority != expected:
                self._errors.add(f"has no locality of priority {expected}, but of {priority}")
                return
            total = sum(locality.weight for locality in by_priority[priority].values())
            if total > UINT32_MAX:
                self._errors.add(
                    f"weights of the localities of priority {priority} add up to {total}, "
                    f"wanted at most {UINT32_MAX}"
                )


# ---------------------------------------------------------------------------------------------
# One endpoint


def _parse_endpoint(
    message: Proto, errors: ValidationErrors, *, has_proxies: bool
) -> EndpointInfo | None:
    """None if the endpoint is not to be used. Counts only if nothing was added to errors."""
    health = HEALTH_STATUSES.get(message.health_status)
    if health is None:
        return None
    weight = 1
    if message.HasField("load_balancing_weight"):
        weight = message.load_balancing_weight.value
        if weight == 0:
            _add(errors, "load_balancing_weight", "is 0, wanted at least 1")
    has_metadata = message.HasField("metadata")
    return EndpointInfo(
        addresses=_parse_addresses(message, errors),
        weight=weight,
        health=health,
        hostname=message.endpoint.hostname,
        hash_key=_hash_key(message) if has_metadata else "",
        http_proxy=parse_proxy_address(message, errors) if has_metadata and has_proxies else None,
    )


def _parse_addresses(message: Proto, errors: ValidationErrors) -> tuple[Address, ...]:
    """The address, then the additional ones (A61-01)."""
    if not message.HasField("endpoint"):
        _add(errors, "endpoint", "is missing")
        return ()
    endpoint = message.endpoint
    addresses = [_parse_address(endpoint, "endpoint.address", errors)]
    for index, additional in enumerate(endpoint.additional_addresses):
        path = f"endpoint.additional_addresses[{index}].address"
        addresses.append(_parse_address(additional, path, errors))
    return tuple(address for address in addresses if address is not None)


def _parse_address(owner: Proto, path: str, errors: ValidationErrors) -> IpAddress | None:
    """What is in the field `address` of this message."""
    address = owner.address
    if not address.HasField("socket_address"):
        what = "socket_address" if owner.HasField("address") else ""
        _add(errors, f"{path}.{what}".rstrip("."), "is missing")
        return None
    socket_address = address.socket_address
    port = socket_address.port_value
    if port > PORT_MAX:
        where = f"{path}.socket_address.port_value"
        _add(errors, where, f"is {port}, wanted at most {PORT_MAX}")
        return None
    try:
        return IpAddress(socket_address.address, port)
    except ValueError:
        where, got = f"{path}.socket_address.address", socket_address.address
        _add(errors, where, f"is {got!r}, wanted a literal IP address")
        return None


def _hash_key(message: Proto) -> str:
    """What to hash in place of the address (A76); of another type it counts as absent."""
    by_filter = message.metadata.filter_metadata
    fields = by_filter["envoy.lb"].fields if "envoy.lb" in by_filter else {}
    text: str = fields["hash_key"].string_value if "hash_key" in fields else ""
    return text


# ---------------------------------------------------------------------------------------------
# Drops


def _parse_drops(messages: Iterable[Proto], errors: ValidationErrors) -> Iterable[DropCategory]:
    for index, message in enumerate(messages):
        with errors.index(index):
            yield _parse_drop(message, errors)


def _parse_drop(message: Proto, errors: ValidationErrors) -> DropCategory:
    if not message.category:
        _add(errors, "category", "is empty, wanted a name")
    if not message.HasField("drop_percentage"):
        _add(errors, "drop_percentage", "is missing")
    with errors.field("drop_percentage"):
        # More than all is all, no error (A27-24).
        fraction = parse_fraction(message.drop_percentage, errors)
    return DropCategory(message.category, fraction.per_million)


def _add(errors: ValidationErrors, path: str, text: str) -> None:
    with errors.field(path):
        errors.add(text)
