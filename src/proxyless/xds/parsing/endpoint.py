"""EDS: parser of ClusterLoadAssignment resources.

Specs: A27-21 to A27-24 (localities, endpoints, drops), A61-02 (several addresses of an endpoint),
A76 (hash_key), A81 (hostname), A86 (proxies), LE-01 to LE-03 (collections of endpoints).
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final

from proxyless.base import Address, IpAddress, Locality, Status, ValidationErrors, quote
from proxyless.base.endpoint import PORT_MAX
from proxyless.runtime.work_queue import STEP_UNITS, finish
from proxyless.xds.bootstrap import DELTA
from proxyless.xds.bootstrap.resource_names import parse_collection_name, servers_of
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.http_proxy import is_http_connect_enabled, parse_proxy_address
from proxyless.xds.parsing.limits import (
    ADDRESSES_MAX,
    ENDPOINTS_MAX,
    HOSTNAME_CHARACTERS_MAX,
    LOCALITIES_MAX,
    PRIORITIES_MAX,
)
from proxyless.xds.parsing.part_cache import PartCache
from proxyless.xds.parsing.proto_fields import (
    UINT32_MAX,
    add_error,
    check_config_source,
    check_count,
    parse_fraction,
    parse_list,
)
from proxyless.xds.parsing.route import ROUTING_TYPES
from proxyless.xds.resources import (
    DropCategory,
    EndpointInfo,
    EndpointResource,
    HealthStatus,
    LocalityEndpoints,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.protos import Proto
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext, Decoded

CLUSTER_LOAD_ASSIGNMENT: Final = "envoy.config.endpoint.v3.ClusterLoadAssignment"
LB_ENDPOINT: Final = "envoy.config.endpoint.v3.LbEndpoint"

# Work (`ValidationErrors.work`).
_LOCALITY_WORK: Final = 5
_ENDPOINT_WORK: Final = 10
_CACHED_WORK: Final = 2
_BYTES_PER_WORK: Final = 32

# Values of envoy.config.core.v3.HealthStatus. Endpoints with another value are skipped (A27-23).
HEALTH_STATUSES: Final[Mapping[int, HealthStatus]] = {
    0: HealthStatus.UNKNOWN,
    1: HealthStatus.HEALTHY,
    3: HealthStatus.DRAINING,
}


class EndpointType:
    """The EDS resource type."""

    type_url: Final = f"{TYPE_URL_PREFIX}{CLUSTER_LOAD_ASSIGNMENT}"
    is_full_state: Final = False
    named_by: Final = ROUTING_TYPES

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._cache: Final = PartCache[EndpointInfo]()
        self._has_proxies: Final = is_http_connect_enabled(environ)

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[EndpointResource]:
        return finish(self.decode_in_steps(serialized, context))

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Steps[Decoded[EndpointResource]]:
        return decode_resource(
            CLUSTER_LOAD_ASSIGNMENT,
            serialized,
            partial(self._parse, context),
            name_field="cluster_name",
        )

    def _parse(
        self, context: DecodeContext, message: Proto, errors: ValidationErrors
    ) -> Steps[EndpointResource]:
        cached = self._cache.get(message.cluster_name)
        parser = _AssignmentParser(errors, cached, context, has_proxies=self._has_proxies)
        resource = yield from parser.parse(message)
        if errors.ok:
            self._cache.put(resource.name, parser.parsed)
        return resource


def parse_endpoints(message: Proto, errors: ValidationErrors) -> EndpointResource:
    """A ClusterLoadAssignment message. The result is valid only if no error was added."""
    return finish(_AssignmentParser(errors, {}, None, has_proxies=True).parse(message))


class _AssignmentParser:
    """Parser of one ClusterLoadAssignment.

    For speed, it enters a scope of errors once per endpoint, and further scopes only for an error.
    """

    def __init__(
        self,
        errors: ValidationErrors,
        cached: Mapping[bytes, EndpointInfo],
        context: DecodeContext | None,
        *,
        has_proxies: bool,
    ) -> None:
        self._errors = errors
        # None: the servers of collections are not checked.
        self._context = context
        # Valid endpoints by their bytes: those of the last version, and those of this one.
        self._cached = cached
        self.parsed: dict[bytes, EndpointInfo] = {}
        # Whether HTTP proxies are read from metadata (A86).
        self._has_proxies = has_proxies
        # "duplicate address anywhere" is an error (A27-49..52).
        self._addresses: set[Address] = set()
        # Collections of localities (LEDS).
        self._collections: dict[str, None] = {}

    def parse(self, message: Proto) -> Steps[EndpointResource]:
        with self._errors.field("endpoints"):
            priorities = yield from self._parse_priorities(message.endpoints)
        with self._errors.field("policy.drop_overloads"):
            drops = parse_list(message.policy.drop_overloads, None, _parse_drop, self._errors)
        return EndpointResource(
            name=message.cluster_name,
            priorities=priorities,
            drops=drops,
            collections=tuple(self._collections),
        )

    def _parse_priorities(
        self, localities: Sequence[Proto]
    ) -> Steps[tuple[tuple[LocalityEndpoints, ...], ...]]:
        if not check_count(localities, LOCALITIES_MAX, self._errors):
            return ()
        count = sum(len(locality.lb_endpoints) for locality in localities)
        if count > ENDPOINTS_MAX:
            self._errors.add(f"has {count} endpoints, wanted at most {ENDPOINTS_MAX}")
            return ()
        self._errors.work += len(localities)
        by_priority: dict[int, dict[Locality, LocalityEndpoints]] = {}
        for index, message in enumerate(localities):
            if self._errors.work >= STEP_UNITS:
                yield self._errors.take_work()
            self._errors.work += _LOCALITY_WORK
            weight = message.load_balancing_weight.value
            # A locality without load is skipped, and not validated (A27-21).
            if weight == 0:
                continue
            with self._errors.index(index):
                members = by_priority.setdefault(message.priority, {})
                yield from self._parse_locality(message, weight, members)
            if self._errors.is_full:
                return ()
        self._check_priorities(by_priority)
        return tuple(tuple(by_priority[priority].values()) for priority in sorted(by_priority))

    def _parse_locality(
        self, message: Proto, weight: int, members: dict[Locality, LocalityEndpoints]
    ) -> Steps[None]:
        where = message.locality
        locality = Locality(where.region, where.zone, where.sub_zone)
        if not message.HasField("locality"):
            add_error(self._errors, "locality", "is missing")
        elif locality in members:
            self._errors.add(f"duplicate locality {locality} in priority {message.priority}")
        with self._errors.field("lb_endpoints"):
            endpoints = yield from self._parse_endpoints(message.lb_endpoints)
        proxy = None
        if self._has_proxies and message.HasField("metadata"):
            proxy = parse_proxy_address(message, self._errors)
        collection = ""
        if message.HasField("leds_cluster_locality_config"):
            collection = self._parse_collection(message)
        members[locality] = LocalityEndpoints(locality, weight, endpoints, proxy, collection)

    def _parse_collection(self, message: Proto) -> str:
        """The name of the collection that has the endpoints of a locality (LEDS)."""
        config, errors = message.leds_cluster_locality_config, self._errors
        with errors.field("leds_cluster_locality_config"):
            if message.lb_endpoints:
                errors.add("is set beside lb_endpoints, wanted one of them")
            with errors.field("leds_config"):
                check_config_source(config.leds_config, errors)
            with errors.field("leds_collection_name"):
                name = parse_collection_name(config.leds_collection_name, LB_ENDPOINT)
                if isinstance(name, Status):
                    errors.add(name.details)
                    return ""
                collection = str(name)
                if collection in self._collections:
                    errors.add(f"is {quote(collection)} again, wanted one locality for it")
                if (server := self._find_server_without_delta(name.authority)) is not None:
                    what = f'server_features of xds server {quote(server)} without "{DELTA}"'
                    errors.add(f"needs incremental xDS: bootstrap has {what}")
        self._collections[collection] = None
        return collection

    def _find_server_without_delta(self, authority: str | None) -> str | None:
        """URI of a server of this authority that does not use the incremental protocol."""
        if self._context is None:
            return None
        servers = servers_of(self._context.bootstrap, authority)
        # The watch of a collection of an unknown authority fails.
        found = () if isinstance(servers, Status) else servers
        return next((each.uri for each in found if DELTA not in each.features), None)

    def _parse_endpoints(self, messages: Sequence[Proto]) -> Steps[tuple[EndpointInfo, ...]]:
        errors, cached, parsed = self._errors, self._cached, self.parsed
        endpoints: list[EndpointInfo] = []
        addresses = self._addresses
        for message in errors.each(messages):
            if errors.work >= STEP_UNITS:
                yield errors.take_work()
                if errors.is_full:
                    break
            key = message.SerializeToString()
            endpoint = cached.get(key)
            if endpoint is not None:
                errors.work += _CACHED_WORK
            else:
                errors.work += _ENDPOINT_WORK + len(key) // _BYTES_PER_WORK
                endpoint = parse_endpoint(message, errors, has_proxies=self._has_proxies)
                if endpoint is None:
                    continue
            parsed[key] = endpoint
            for address in endpoint.addresses:
                # No `in` before `add`: an address takes a third of a microsecond to hash.
                count = len(addresses)
                addresses.add(address)
                if len(addresses) == count:
                    errors.add(f"duplicate address {address}")
            endpoints.append(endpoint)
        return tuple(endpoints)

    def _check_priorities(
        self, by_priority: Mapping[int, Mapping[Locality, LocalityEndpoints]]
    ) -> None:
        if len(by_priority) > PRIORITIES_MAX:
            self._errors.add(f"has {len(by_priority)} priorities, wanted at most {PRIORITIES_MAX}")
            return
        for expected, priority in enumerate(sorted(by_priority)):
            # Priorities have to be contiguous (A27-21).
            if priority != expected:
                self._errors.add(f"has no locality of priority {expected}, but of {priority}")
                return
            total = sum(locality.weight for locality in by_priority[priority].values())
            if total > UINT32_MAX:
                self._errors.add(
                    f"weights of the localities of priority {priority} add up to {total}, "
                    f"wanted at most {UINT32_MAX}"
                )


def parse_endpoint(
    message: Proto, errors: ValidationErrors, *, has_proxies: bool
) -> EndpointInfo | None:
    """None if its health status is not supported."""
    health = HEALTH_STATUSES.get(message.health_status)
    if health is None:
        return None
    weight = 1
    if message.HasField("load_balancing_weight"):
        weight = message.load_balancing_weight.value
        if weight == 0:
            add_error(errors, "load_balancing_weight", "is 0, wanted at least 1")
    endpoint = message.endpoint
    hostname = endpoint.hostname
    if len(hostname) > HOSTNAME_CHARACTERS_MAX:
        count, limit = len(hostname), HOSTNAME_CHARACTERS_MAX
        add_error(errors, "endpoint.hostname", f"has {count} characters, wanted at most {limit}")
    addresses = _parse_addresses(message, endpoint, errors)
    if not message.HasField("metadata"):
        return EndpointInfo(addresses, weight, health, hostname)
    return EndpointInfo(
        addresses,
        weight,
        health,
        hostname,
        hash_key=_hash_key(message),
        http_proxy=parse_proxy_address(message, errors) if has_proxies else None,
    )


def _parse_addresses(
    message: Proto, endpoint: Proto, errors: ValidationErrors
) -> tuple[Address, ...]:
    """The address, then the additional ones (A61-02)."""
    if not message.HasField("endpoint"):
        add_error(errors, "endpoint", "is missing")
        return ()
    first = _parse_address(endpoint, "endpoint.address", errors)
    additional = endpoint.additional_addresses
    if not additional and first is not None:
        return (first,)
    count = 1 + len(additional)
    if count > ADDRESSES_MAX:
        add_error(errors, "endpoint", f"has {count} addresses, wanted at most {ADDRESSES_MAX}")
        return ()
    addresses = [first]
    for index, owner in enumerate(additional):
        path = f"endpoint.additional_addresses[{index}].address"
        addresses.append(_parse_address(owner, path, errors))
    return tuple(address for address in addresses if address is not None)


def _parse_address(owner: Proto, path: str, errors: ValidationErrors) -> IpAddress | None:
    # Without a socket_address, the host is empty.
    socket_address = owner.address.socket_address
    port = socket_address.port_value
    if port > PORT_MAX:
        text = f"is {port}, wanted at most {PORT_MAX}"
        add_error(errors, f"{path}.socket_address.port_value", text)
        return None
    host = socket_address.address
    try:
        return IpAddress(host, port)
    except ValueError:
        _add_host_error(owner, path, host, errors)
        return None


def _add_host_error(owner: Proto, path: str, host: str, errors: ValidationErrors) -> None:
    if not owner.HasField("address"):
        add_error(errors, path, "is missing")
    elif not owner.address.HasField("socket_address"):
        add_error(errors, f"{path}.socket_address", "is missing")
    else:
        text = f"is {host!r}, wanted a literal IP address"
        add_error(errors, f"{path}.socket_address.address", text)


def _hash_key(message: Proto) -> str:
    """The hash_key (A76); empty if it is unset or no string."""
    by_filter = message.metadata.filter_metadata
    fields = by_filter["envoy.lb"].fields if "envoy.lb" in by_filter else {}
    text: str = fields["hash_key"].string_value if "hash_key" in fields else ""
    return text


def _parse_drop(message: Proto, errors: ValidationErrors) -> DropCategory:
    if not message.category:
        add_error(errors, "category", "is empty, wanted a name")
    if not message.HasField("drop_percentage"):
        add_error(errors, "drop_percentage", "is missing")
    with errors.field("drop_percentage"):
        # A fraction above 1 counts as 1, without an error (A27-24).
        fraction = parse_fraction(message.drop_percentage, errors)
    return DropCategory(message.category, fraction.per_million)
