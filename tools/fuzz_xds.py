"""Fuzzer of the parsers of xDS resources.

An input is a valid resource with changed, repeated or missing parts, even inside extensions; or its
bytes, cut and flipped; or noise. The rules: `decode` raises nothing; it returns a resource or an
error text, never both, and the same each time; the length of the text is bounded, and so is the
work of each step.

Each twentieth input is a mesh: aggregates and priorities of random shape, with cycles, gaps and
shared leaves. It must give a config or an error, the same each time, within a limit of CPU time.

An input depends only on seed and index, so one line reproduces a failure.
"""

import argparse
import sys
import time  # noqa: TID251 - CPU time, not the time of day
import traceback
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf, nan
from typing import Any, Final, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from proxyless.assembly import default_policies
from proxyless.base import OK, Status, StatusCode
from proxyless.protos import Proto, descriptor_pool_of_envoy, message_class
from proxyless.runtime import Random, seeded_random
from proxyless.xds.bootstrap import (
    TRUSTED_XDS_SERVER,
    Bootstrap,
    CertificateProviderConfig,
    ChannelCreds,
    ServerConfig,
)
from proxyless.xds.client.api import DecodeContext, Decoded, ResourceType, SteppedResourceType
from proxyless.xds.config.dependency_manager import ResourceTypes
from proxyless.xds.config.plan import ConfigError, ConfigTarget
from proxyless.xds.config.xds_config import ClusterError
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import (
    ClusterType,
    EndpointCollectionType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX
from proxyless.xds.parsing.endpoint import LB_ENDPOINT
from proxyless.xds.parsing.limits import PART_WORK_MAX
from proxyless.xds.view.offline import resolve_offline

T = TypeVar("T")

# The maximum number of errors, times the lengths of a path and a text, with separators.
ERROR_CHARS_MAX: Final = 100 * (2 * 500 + 40)
STRUCTURE_DEPTH_MAX: Final = 3

INPUTS_PER_MESH: Final = 20
MESH_CLUSTERS_MAX: Final = 60
AGGREGATED_MAX: Final = 12
# A tenth of it is enough here.
MESH_CPU_S_MAX: Final = 2.0
# The last part of a step may go beyond the limit: an expression, an extension.
STEP_WORK_MAX: Final = PART_WORK_MAX + 20_000

TEXTS: Final = (
    "",
    "a",
    "*",
    "*.example",
    "a*b",
    "/svc/method",
    "/svc/",
    "//",
    "(",
    "a{1000}",
    r"\1",
    "unavailable,cancelled",
    "0s",
    "10.0.0.1",
    "::1",
    "x" * 600,
    "\0",
    "é\U0001f600",
)
INTEGERS: Final = (0, 1, 2, 3, 5, 7, 16, 17, 100, 101, 65_535, 65_536, 10**9, 2**31 - 1)
WIDE_INTEGERS: Final = (*INTEGERS, 315_576_000_000, 315_576_000_001, 2**63 - 1)
NEGATIVE: Final = (-1, -(2**31))
NUMBERS: Final = (0.0, 1.0, -1.5, 1e300, nan, inf)

# Messages that an Any may contain.
EXTENSIONS: Final = (
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
    "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
    "envoy.config.route.v3.FilterConfig",
    "envoy.config.core.v3.Metadata",
    "xds.type.v3.TypedStruct",
    "envoy.config.core.v3.Address",
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
)


def any_of(type_name: str, **fields: object) -> dict[str, object]:
    return {"@type": f"{TYPE_URL_PREFIX}{type_name}", **fields}


COOKIE: Final = {
    "name": "cookie",
    "typed_config": any_of(EXTENSIONS[5], cookie={"name": "session", "ttl": "60s", "path": "/"}),
}
PERCENT: Final = {"numerator": 5, "denominator": "TEN_THOUSAND"}
FAULT: Final = any_of(
    EXTENSIONS[2],
    delay={"fixed_delay": "1s", "percentage": PERCENT},
    abort={"grpc_status": 14, "percentage": PERCENT},
    max_active_faults=3,
)
OVERRIDES: Final = {
    "fault": any_of(EXTENSIONS[6], config=FAULT, is_optional=True),
    "session": any_of(EXTENSIONS[4], stateful_session={"session_state": COOKIE}),
    "own": any_of(EXTENSIONS[6], disabled=True),
}
ROUTES: Final[dict[str, Any]] = {
    "name": "routes",
    "virtual_hosts": [
        {
            "name": "host",
            "domains": ["*", "*.example", "api.example"],
            "retry_policy": {"retry_on": "unavailable", "num_retries": 3},
            "typed_per_filter_config": OVERRIDES,
            "routes": [
                {
                    "match": {
                        "prefix": "/svc/",
                        "case_sensitive": False,
                        "headers": [
                            {"name": "a", "string_match": {"exact": "b", "ignore_case": True}},
                            {"name": "c", "safe_regex_match": {"regex": "d.*"}},
                            {"name": "e", "range_match": {"start": 1, "end": 9}},
                            {"name": "f", "present_match": True, "invert_match": True},
                        ],
                        "runtime_fraction": {"default_value": PERCENT},
                    },
                    "route": {
                        "weighted_clusters": {
                            "clusters": [
                                {"name": "a", "weight": 3, "typed_per_filter_config": OVERRIDES},
                                {"name": "b", "weight": 0},
                            ]
                        },
                        "max_stream_duration": {
                            "max_stream_duration": "3s",
                            "grpc_timeout_header_max": "4s",
                        },
                        "retry_policy": {
                            "retry_on": "cancelled",
                            "retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"},
                        },
                    },
                },
                {
                    "match": {"safe_regex": {"regex": "/.*/m"}},
                    "route": {
                        "cluster": "a",
                        "timeout": "5s",
                        "max_grpc_timeout": "6s",
                        "auto_host_rewrite": True,
                        "hash_policy": [
                            {
                                "header": {
                                    "header_name": "h",
                                    "regex_rewrite": {
                                        "pattern": {"regex": "(a)"},
                                        "substitution": r"\1",
                                    },
                                }
                            },
                            {"filter_state": {"key": "io.grpc.channel_id"}, "terminal": True},
                        ],
                    },
                },
                {"match": {"path": "/svc/method"}, "redirect": {}},
                {"match": {"prefix": ""}, "route": {"cluster_specifier_plugin": "new"}},
            ],
        }
    ],
    "cluster_specifier_plugins": [
        {
            "extension": {"name": "new", "typed_config": any_of("envoy.config.core.v3.Metadata")},
            "is_optional": True,
        }
    ],
}
HTTP_FILTERS: Final = [
    {"name": "fault", "typed_config": FAULT},
    {"name": "session", "typed_config": any_of(EXTENSIONS[3], session_state=COOKIE)},
    {
        "name": "own",
        "is_optional": True,
        "typed_config": any_of(
            "xds.type.v3.TypedStruct", type_url="example/own.Filter", value={"a": [1, {"b": None}]}
        ),
    },
    {"name": "router", "typed_config": any_of(EXTENSIONS[1])},
]
PROXY: Final = {
    "typed_filter_metadata": {
        "envoy.http11_proxy_transport_socket.proxy_address": any_of(
            EXTENSIONS[9], socket_address={"address": "10.0.0.9", "port_value": 3128}
        )
    }
}
ENDPOINT: Final = {
    "metadata": PROXY,
    "health_status": "HEALTHY",
    "load_balancing_weight": 2,
    "endpoint": {
        "hostname": "one.example",
        "address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
        "additional_addresses": [
            {"address": {"socket_address": {"address": "::1", "port_value": 80}}}
        ],
    },
}
ASSIGNMENT: Final[dict[str, object]] = {
    "cluster_name": "a",
    "endpoints": [
        {
            "locality": {"region": "r", "zone": str(priority)},
            "load_balancing_weight": 3,
            "priority": priority,
            "lb_endpoints": [
                {
                    **ENDPOINT,
                    "endpoint": {
                        "address": {
                            "socket_address": {"address": f"10.0.0.{priority}", "port_value": 80}
                        }
                    },
                }
            ],
        }
        for priority in range(2)
    ],
    "policy": {"drop_overloads": [{"category": "lb", "drop_percentage": PERCENT}]},
}


def policy_of(name: str, **fields: object) -> dict[str, object]:
    typed_config = any_of(f"envoy.extensions.load_balancing_policies.{name}", **fields)
    entry = {"typed_extension_config": {"name": name, "typed_config": typed_config}}
    return {"policies": [entry]}


TLS_SOCKET: Final = {
    "name": "envoy.transport_sockets.tls",
    "typed_config": any_of(
        EXTENSIONS[11],
        common_tls_context={
            "validation_context": {
                "ca_certificate_provider_instance": {"instance_name": "ca"},
                "match_subject_alt_names": [{"prefix": "spiffe://"}],
            }
        },
    ),
}
EDS: Final = {"eds_config": {"ads": {}}, "service_name": "s"}
CLUSTER: Final[dict[str, object]] = {
    "name": "a",
    "type": "EDS",
    "eds_cluster_config": EDS,
    "load_balancing_policy": policy_of("ring_hash.v3.RingHash", minimum_ring_size=4),
    "lrs_server": {"self": {}},
    "lrs_report_endpoint_metrics": ["mem_utilization", "named_metrics.a"],
    "circuit_breakers": {"thresholds": [{"max_requests": 7}]},
    "outlier_detection": {"interval": "5s", "max_ejection_percent": 20, "consecutive_5xx": 3},
    "common_lb_config": {"override_host_status": {"statuses": ["HEALTHY", "DRAINING"]}},
    "transport_socket": {
        "name": "envoy.transport_sockets.http_11_proxy",
        "typed_config": any_of(EXTENSIONS[10], transport_socket=TLS_SOCKET),
    },
}
COLLECTED: Final[dict[str, object]] = {
    "cluster_name": "a",
    "endpoints": [
        {
            "locality": {"zone": zone},
            "load_balancing_weight": 1,
            "leds_cluster_locality_config": {
                "leds_config": {"self": {}},
                "leds_collection_name": f"xdstp://mesh/{LB_ENDPOINT}/{zone}/*?x=1",
            },
        }
        for zone in "ab"
    ],
}
DNS: Final[dict[str, object]] = {
    "name": "d",
    "type": "LOGICAL_DNS",
    "load_balancing_policy": policy_of("round_robin.v3.RoundRobin"),
    "load_assignment": {"endpoints": [{"lb_endpoints": [ENDPOINT]}]},
}
AGGREGATE: Final[dict[str, object]] = {
    "name": "g",
    "cluster_type": {
        "name": "envoy.clusters.aggregate",
        "typed_config": any_of(
            "envoy.extensions.clusters.aggregate.v3.ClusterConfig", clusters=["a", "d"]
        ),
    },
}
MANAGER: Final = {"http_filters": HTTP_FILTERS}
RDS: Final = {"config_source": {"ads": {}}, "route_config_name": "routes"}


def listener_of(**manager: object) -> dict[str, object]:
    return {"name": "l", "api_listener": {"api_listener": any_of(EXTENSIONS[0], **manager)}}


# By the full name of the resource.
SAMPLES: Final[dict[str, tuple[Mapping[str, object], ...]]] = {
    "envoy.config.listener.v3.Listener": (
        listener_of(**MANAGER, rds=RDS, common_http_protocol_options={"max_stream_duration": "1s"}),
        listener_of(**MANAGER, route_config=ROUTES),
    ),
    "envoy.config.route.v3.RouteConfiguration": (ROUTES,),
    "envoy.config.cluster.v3.Cluster": (CLUSTER, DNS, AGGREGATE),
    "envoy.config.endpoint.v3.ClusterLoadAssignment": (ASSIGNMENT, COLLECTED),
    LB_ENDPOINT: (ENDPOINT,),
}


@cache
def samples() -> Mapping[str, tuple[bytes, ...]]:
    """The valid resources, serialized."""
    pool = descriptor_pool_of_envoy()

    def serialize(name: str, sample: Mapping[str, object]) -> bytes:
        message = json_format.ParseDict(dict(sample), message_class(name)(), descriptor_pool=pool)
        return bytes(message.SerializeToString())

    return {name: tuple(serialize(name, each) for each in of) for name, of in SAMPLES.items()}


@cache
def resource_types() -> Mapping[str, ResourceType[object]]:
    """Decoders by the full name of the resource."""
    filters = FilterRegistry(FILTER_FACTORIES)
    kinds: tuple[ResourceType[object], ...] = (
        ListenerType(filters),
        RouteConfigurationType(filters),
        ClusterType(default_policies()),
        EndpointType(),
        MemberType(),
    )
    return {kind.type_url.removeprefix(TYPE_URL_PREFIX): kind for kind in kinds}


class MemberType:
    """Members of collections, which have no name inside, as a resource type."""

    type_url: Final = EndpointCollectionType.type_url
    is_full_state: Final = False

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[object]:
        found = EndpointCollectionType().decode_member("x", serialized, context)
        # An endpoint that is not healthy is valid, and not used.
        return Decoded(
            found.name, found.resource or (None if found.error else "unused"), found.error
        )

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Generator[int, None, Decoded[object]]:
        yield 0
        return self.decode(serialized, context)


@cache
def context() -> DecodeContext:
    server = ServerConfig(
        "control-plane:443",
        ChannelCreds("insecure"),
        features=frozenset({TRUSTED_XDS_SERVER}),
    )
    providers = {"ca": CertificateProviderConfig("file_watcher", {})}
    return DecodeContext(server, Bootstrap(servers=(server,), certificate_providers=providers))


def pick(rng: Random, choices: Sequence[T]) -> T:
    return choices[rng.randrange(len(choices))]


# Messages that are nearly valid


def some_scalar(rng: Random, descriptor: Any) -> object:  # noqa: ANN401 - protobuf's has no stub
    if descriptor.cpp_type == descriptor.CPPTYPE_STRING:
        text = pick(rng, TEXTS)
        return text if descriptor.type == descriptor.TYPE_STRING else text.encode()
    choices: dict[int, Sequence[object]] = {
        descriptor.CPPTYPE_BOOL: (False, True),
        descriptor.CPPTYPE_DOUBLE: NUMBERS,
        descriptor.CPPTYPE_FLOAT: NUMBERS,
        descriptor.CPPTYPE_INT64: (*WIDE_INTEGERS, *NEGATIVE),
        descriptor.CPPTYPE_UINT64: WIDE_INTEGERS,
        descriptor.CPPTYPE_UINT32: (*INTEGERS, 2**32 - 1),
    }
    return pick(rng, choices.get(descriptor.cpp_type, (*INTEGERS, *NEGATIVE)))


def fill(rng: Random, message: Proto, depth_left: int = STRUCTURE_DEPTH_MAX) -> None:
    """Set fields of an empty message."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        fill_any(rng, message, depth_left)
        return
    for _ in range(rng.randrange(4) if message.DESCRIPTOR.fields else 0):
        set_field(rng, message, pick(rng, message.DESCRIPTOR.fields), depth_left)


def fill_any(rng: Random, message: Proto, depth_left: int) -> None:
    name = pick(rng, EXTENSIONS)
    message.type_url = f"{TYPE_URL_PREFIX}{name}" if rng.randrange(20) else pick(rng, TEXTS)
    inner = message_class(name)()
    if depth_left > 0:
        fill(rng, inner, depth_left - 1)
    message.value = inner.SerializeToString() if rng.randrange(20) else b"\xff\xff"


def set_field(rng: Random, message: Proto, descriptor: Any, depth_left: int) -> None:  # noqa: ANN401
    """Set a field to another value, or add one to a repeated field."""
    name = descriptor.name
    if descriptor.message_type is None:
        if descriptor.is_repeated:
            getattr(message, name).append(some_scalar(rng, descriptor))
        else:
            setattr(message, name, some_scalar(rng, descriptor))
    elif depth_left > 0:
        fill(rng, child_to_fill(rng, message, descriptor), depth_left - 1)


def child_to_fill(rng: Random, message: Proto, descriptor: Any) -> Proto:  # noqa: ANN401
    """A submessage, created if necessary."""
    child = getattr(message, descriptor.name)
    if descriptor.message_type.GetOptions().map_entry:
        value = descriptor.message_type.fields_by_name["value"]
        if value.message_type is None:
            return message_class("google.protobuf.Struct")()
        return child[pick(rng, TEXTS)]
    if descriptor.is_repeated:
        return child.add()
    child.SetInParent()
    return child


def children(message: Proto) -> list[Proto]:
    """The messages that are set in a message."""
    found: list[Proto] = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            found += (each for each in value.values() if hasattr(each, "DESCRIPTOR"))
        elif descriptor.is_repeated:
            found += value
        else:
            found.append(value)
    return found


def change(rng: Random, message: Proto) -> None:
    """Change a field of the message or of a submessage."""
    below = children(message)
    if message.DESCRIPTOR.full_name == "google.protobuf.Any" and rng.randrange(8):
        change_inside(rng, message)
    elif below and rng.randrange(5):
        change(rng, pick(rng, below))
    else:
        change_here(rng, message)


def change_inside(rng: Random, message: Proto) -> None:
    """Change the message inside an Any."""
    try:
        inner = message_class(message.type_url.rpartition("/")[2]).FromString(message.value)
    except (KeyError, DecodeError):
        return
    change(rng, inner)
    message.value = inner.SerializeToString()


def change_here(rng: Random, message: Proto) -> None:
    if not message.DESCRIPTOR.fields:
        return
    present = message.ListFields()
    if not present or rng.randrange(4) == 0:
        set_field(rng, message, pick(rng, message.DESCRIPTOR.fields), STRUCTURE_DEPTH_MAX)
        return
    descriptor, value = pick(rng, present)
    match rng.randrange(3):
        case 0:
            message.ClearField(descriptor.name)
        case 1 if hasattr(value, "extend"):
            value.extend(list(value))
        case _:
            set_field(rng, message, descriptor, STRUCTURE_DEPTH_MAX)


def damage(rng: Random, serialized: bytes) -> bytes:
    """Change bytes, without regard to fields."""
    data = bytearray(serialized)
    for _ in range(1 + rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = rng.getrandbits(32).to_bytes(4, "big")
            case 2:
                del data[at : at + 1 + rng.randrange(8)]
            case _ if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case _:
                pass
    return bytes(data)


def some_input(rng: Random) -> tuple[str, bytes]:
    """The full name of a resource type, and bytes to decode as such."""
    name = pick(rng, tuple(SAMPLES))
    if rng.randrange(50) == 0:
        size = rng.randrange(40)
        return name, rng.getrandbits(8 * size + 1).to_bytes(size + 1, "big")
    message = message_class(name).FromString(pick(rng, samples()[name]))
    for _ in range(rng.randrange(4)):
        change(rng, message)
    serialized = bytes(message.SerializeToString())
    return name, damage(rng, serialized) if rng.randrange(5) == 0 else serialized


# Meshes


@dataclass
class Mesh:
    """Serialized resources of a target, by type URL and name."""

    resources: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def add(self, type_name: str, name: str, message: Proto) -> None:
        self.resources[TYPE_URL_PREFIX + type_name, name] = bytes(message.SerializeToString())

    def find(self, type_url: str, name: str) -> tuple[bytes | None, Status]:
        found = self.resources.get((type_url, name))
        return found, OK if found is not None else Status(StatusCode.NOT_FOUND, "does not exist")


def some_mesh(rng: Random) -> Mesh:
    """A listener whose routes lead to a random graph of clusters; about one in ten is missing."""
    mesh = Mesh()
    listener, routes, cluster, _, _ = SAMPLES
    names = [f"c{number}" for number in range(1 + rng.randrange(MESH_CLUSTERS_MAX))]
    mesh.add(listener, "x", message_class(listener).FromString(samples()[listener][0]))
    route_config = message_class(routes)(name="routes")
    host = route_config.virtual_hosts.add(name="h", domains=["*"])
    for _ in range(1 + rng.randrange(5)):
        host.routes.add(match={"prefix": "/"}, route={"cluster": pick(rng, names)})
    mesh.add(routes, "routes", route_config)
    is_deep = rng.randrange(2)
    for number, name in enumerate(names):
        match rng.randrange(10):
            case 0:
                continue
            case 1 | 2 | 3 | 4:
                # Deep aggregates lead to later clusters, so that most have no cycle.
                below = names[number + 1 : number + 3] if is_deep else names
                mesh.add(cluster, name, some_aggregate(rng, name, below or names))
            case _:
                leaf = message_class(cluster).FromString(samples()[cluster][0])
                leaf.name, leaf.eds_cluster_config.service_name = name, name
                mesh.add(cluster, name, leaf)
                mesh.add(tuple(SAMPLES)[3], name, some_assignment(rng, name))
    return mesh


def some_aggregate(rng: Random, name: str, below: Sequence[str]) -> Proto:
    message = message_class("envoy.config.cluster.v3.Cluster")(name=name)
    config = message_class("envoy.extensions.clusters.aggregate.v3.ClusterConfig")()
    config.clusters.extend(pick(rng, below) for _ in range(rng.randrange(AGGREGATED_MAX)))
    message.cluster_type.typed_config.Pack(config)
    return message


def some_assignment(rng: Random, name: str) -> Proto:
    """Localities of few to many priorities; some priorities, localities or endpoints repeat."""
    message = message_class("envoy.config.endpoint.v3.ClusterLoadAssignment")(cluster_name=name)
    priorities = pick(rng, (1, 2, 5, 130))
    for number in range(rng.randrange(2 * priorities + 1)):
        priority = number % priorities if rng.randrange(50) else rng.randrange(200)
        weight = pick(rng, (1, 1, 1, 1, 0, 2**31)) if rng.randrange(10) == 0 else 1
        locality = message.endpoints.add(
            priority=priority,
            locality={"zone": str(number // priorities)},
            load_balancing_weight={"value": weight},
        )
        for port in range(rng.randrange(4)):
            address = {"address": f"10.0.{number & 255}.1", "port_value": 80 + port}
            locality.lb_endpoints.add(endpoint={"address": {"socket_address": address}})
    return message


def check_mesh(mesh: Mesh) -> str:
    """The result. Raises if a rule is violated."""
    listener, route_config, cluster, endpoint, _ = (resource_types()[name] for name in SAMPLES)
    types: Any = ResourceTypes(
        listener,  # type: ignore[arg-type]
        route_config,  # type: ignore[arg-type]
        cluster,  # type: ignore[arg-type]
        endpoint,  # type: ignore[arg-type]
        EndpointCollectionType(),
    )
    target = ConfigTarget("x", "x")
    start_s = time.thread_time()
    outcomes = [resolve_offline(target, types, context(), mesh.find).outcome for _ in range(2)]
    spent_s = time.thread_time() - start_s
    assert outcomes[0] is not None, "neither a config nor an error"
    assert repr(outcomes[0]) == repr(outcomes[1]), "another result the second time"
    assert spent_s < MESH_CPU_S_MAX, f"took {spent_s:.1f} s of CPU"
    if isinstance(outcomes[0], ConfigError):
        return "without a config"
    has_errors = any(isinstance(each, ClusterError) for each in outcomes[0].clusters.values())
    return "with errors of clusters" if has_errors else "valid"


# The rules


def check(name: str, serialized: bytes) -> str:
    """The result: valid, refused or undecodable. Raises if a rule is violated."""
    kind = resource_types()[name]
    decoded = kind.decode(serialized, context())
    assert (decoded.resource is None) == bool(decoded.error), "not either a resource or a text"
    assert len(decoded.error) <= ERROR_CHARS_MAX, f"a text of {len(decoded.error)} characters"
    assert "its parser raised" not in decoded.error, decoded.error
    assert isinstance(kind, SteppedResourceType), "all types decode in steps"
    steps = kind.decode_in_steps(serialized, context())
    assert max(steps, default=0) <= STEP_WORK_MAX, "a step with too much work"
    again = kind.decode(serialized, context())
    assert again == decoded, "another result the second time"
    if decoded.resource is not None:
        return "valid"
    return "refused" if decoded.name else "refused without a name"


# Many inputs


@dataclass
class Findings:
    """Results of a range of inputs."""

    # By type of resource and result.
    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def run_one(seed: int, index: int) -> str:
    """Run one input. Raises if a rule is violated."""
    rng = seeded_random(seed << 40 | index)
    if index % INPUTS_PER_MESH == INPUTS_PER_MESH - 1:
        return f"Mesh {check_mesh(some_mesh(rng))}"
    name, serialized = some_input(rng)
    return f"{name.rpartition('.')[2]} {check(name, serialized)}"


def run_all(seed: int, inputs: int) -> Findings:
    findings = Findings()
    for index in range(inputs):
        try:
            findings.ends[run_one(seed, index)] += 1
        except Exception as error:  # Any exception is a finding.
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            findings.failures.append(f"tools.fuzz_xds --seed {seed} --index {index}  # {text}")
    return findings


def reproduce(seed: int, index: int) -> int:
    """Run one input and print the error."""
    try:
        end = run_one(seed, index)
    except Exception:  # It is printed.
        traceback.print_exc()
        return 1
    print(f"seed {seed} index {index}: {end}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--index", type=int, help="run only this input and print the error")
    arguments = parser.parse_args()
    if arguments.index is not None:
        return reproduce(arguments.seed, arguments.index)
    findings = run_all(arguments.seed, arguments.inputs)
    for end, count in sorted(findings.ends.items()):
        print(f"{count:8} {end}")
    for failure in findings.failures[:20]:
        print(f"FAILED {failure}")
    print(
        f"fuzz: {arguments.inputs} resources of seed {arguments.seed},"
        f" {len(findings.failures)} failures"
    )
    return int(bool(findings.failures))


if __name__ == "__main__":
    sys.exit(main())
