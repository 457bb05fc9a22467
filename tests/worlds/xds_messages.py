"""Messages of clusters and endpoints, and the results of their parsers.

A message is written as nested dictionaries: `cluster(eds_cluster_config=...)` changes one field of
a valid EDS cluster, and None removes a field. The errors of a refused message are those of the
NACK, with their paths.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from proxyless.assembly import default_policies
from proxyless.base import quote
from proxyless.lb import PolicyRegistry
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Bootstrap, CertificateProviderConfig, ChannelCreds, ServerConfig
from proxyless.xds.client.api import DecodeContext, Decoded
from proxyless.xds.parsing.cluster import AGGREGATE, CLUSTER, ClusterType
from proxyless.xds.parsing.endpoint import CLUSTER_LOAD_ASSIGNMENT, EndpointType
from proxyless.xds.resources import Cluster, EndpointResource

SERVER = ServerConfig("xds.example:443", ChannelCreds("insecure"))
BOOTSTRAP = Bootstrap(
    servers=(SERVER,),
    certificate_providers={
        "roots": CertificateProviderConfig("file_watcher"),
        "identity": CertificateProviderConfig("file_watcher"),
    },
)
CONTEXT = DecodeContext(SERVER, BOOTSTRAP)

ADS: dict[str, Any] = {"ads": {}}
EDS_CONFIG = {"eds_config": ADS}

# ---------------------------------------------------------------------------------------------
# Messages


def proto(full_name: str, **fields: Any) -> Proto:  # noqa: ANN401 - fields of any message
    """A message; fields that are None are left out."""
    present = {name: value for name, value in fields.items() if value is not None}
    return message_class(full_name)(**present)


def any_of(message: Proto, type_name: str = "") -> Proto:
    """An Any with this message; the type name may be another one."""
    name = type_name or message.DESCRIPTOR.full_name
    return any_with(name, message.SerializeToString())


def any_with(type_name: str, value: bytes) -> Proto:
    url = f"type.googleapis.com/{type_name}"
    return proto("google.protobuf.Any", type_url=url, value=value)


def typed_struct(
    type_name: str, fields: Mapping[str, object] | None = None, *, form: str = "xds.type.v3"
) -> Proto:
    """An Any with a TypedStruct of this type."""
    url = f"type.googleapis.com/{type_name}"
    return any_of(proto(f"{form}.TypedStruct", type_url=url, value=struct(fields or {})))


def struct(fields: Mapping[str, object]) -> Proto:
    """A Struct with these fields."""
    message = proto("google.protobuf.Struct")
    message.update(fields)
    return message


def policies_of(*typed_configs: Proto) -> Proto:
    """A LoadBalancingPolicy with these typed configs; messages are wrapped in an Any."""
    entries = [
        {
            "typed_extension_config": {
                "name": f"policy-{index}",
                "typed_config": config if _is_any(config) else any_of(config),
            }
        }
        for index, config in enumerate(typed_configs)
    ]
    return proto("envoy.config.cluster.v3.LoadBalancingPolicy", policies=entries)


def _is_any(message: Proto) -> bool:
    return bool(message.DESCRIPTOR.full_name == "google.protobuf.Any")


def lb_policy(name: str, message: str, **fields: Any) -> Proto:  # noqa: ANN401 - as above
    """The typed config of an LB policy: `lb_policy("ring_hash", "RingHash", hash_function=1)`."""
    return proto(f"envoy.extensions.load_balancing_policies.{name}.v3.{message}", **fields)


ROUND_ROBIN = lb_policy("round_robin", "RoundRobin")


def wrr_locality(*children: Proto) -> Proto:
    policy = policies_of(*children)
    return lb_policy("wrr_locality", "WrrLocality", endpoint_picking_policy=policy)


def cluster(**changes: Any) -> Proto:  # noqa: ANN401 - as above
    """A valid EDS cluster with these changes."""
    valid = {"name": "orders", "type": "EDS", "eds_cluster_config": EDS_CONFIG}
    return proto(CLUSTER, **(valid | changes))


def dns_cluster(socket_address: Mapping[str, object] | None, **changes: Any) -> Proto:  # noqa: ANN401
    address = {} if socket_address is None else {"socket_address": socket_address}
    endpoint = {"endpoint": {"address": address}}
    assignment = {"endpoints": [{"lb_endpoints": [endpoint]}]}
    valid = {"name": "orders", "type": "LOGICAL_DNS", "load_assignment": assignment}
    return proto(CLUSTER, **(valid | changes))


def aggregate_cluster(*names: str, **changes: Any) -> Proto:  # noqa: ANN401 - as above
    config = any_of(proto(AGGREGATE, clusters=names))
    valid = {"name": "orders", "cluster_type": {"name": "aggregate", "typed_config": config}}
    return proto(CLUSTER, **(valid | changes))


def lb_endpoint(address: str = "10.0.0.1", port: int = 80, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A valid LbEndpoint with these changes; the fields of `endpoint` are added to it."""
    endpoint = {"address": {"socket_address": {"address": address, "port_value": port}}}
    endpoint |= changes.pop("endpoint", {})
    return {"endpoint": endpoint} | changes


def locality(*endpoints: dict[str, Any], zone: str = "a", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A valid locality with these changes."""
    valid = {
        "locality": {"zone": zone},
        "load_balancing_weight": {"value": 1},
        "lb_endpoints": endpoints,
    } | changes
    return {name: value for name, value in valid.items() if value is not None}


def assignment(*localities: dict[str, Any], **changes: Any) -> Proto:  # noqa: ANN401 - as above
    return proto(CLUSTER_LOAD_ASSIGNMENT, cluster_name="orders", endpoints=localities, **changes)


# ---------------------------------------------------------------------------------------------
# Results of the parsers


def known_policies() -> PolicyRegistry:
    """The policies of every channel."""
    return default_policies()


def decode_cluster(
    message: Proto,
    environ: Mapping[str, str] | None = None,
    policies: PolicyRegistry | None = None,
) -> Decoded[Cluster]:
    kind = ClusterType(policies or known_policies(), environ=environ or {})
    return kind.decode(message.SerializeToString(), CONTEXT)


def parsed_cluster(message: Proto, environ: Mapping[str, str] | None = None) -> Cluster:
    """The resource of a valid message."""
    decoded = decode_cluster(message, environ)
    assert decoded.error == ""
    assert decoded.resource is not None
    return decoded.resource


def refused_cluster(message: Proto, environ: Mapping[str, str] | None = None) -> str:
    """The errors of an invalid message."""
    return errors_of(decode_cluster(message, environ), "cluster")


def decode_endpoints(message: Proto) -> Decoded[EndpointResource]:
    return EndpointType().decode(message.SerializeToString(), CONTEXT)


def parsed_endpoints(*localities: dict[str, Any], **changes: Any) -> EndpointResource:  # noqa: ANN401
    """The resource of a valid message with these localities."""
    decoded = decode_endpoints(assignment(*localities, **changes))
    assert decoded.error == ""
    assert decoded.resource is not None
    return decoded.resource


def refused_endpoints(*localities: dict[str, Any], **changes: Any) -> str:  # noqa: ANN401
    """The errors of an invalid message with these localities."""
    return errors_of(decode_endpoints(assignment(*localities, **changes)), "endpoints")


def errors_of(decoded: Decoded[object], kind: str) -> str:
    """The list of errors: `field:type error:...`, joined by "; "."""
    assert decoded.resource is None, "wanted a refusal"
    head = f"{kind} {quote(decoded.name)}: ["
    assert decoded.error.startswith(head)
    assert decoded.error.endswith("]")
    return decoded.error.removeprefix(head).removesuffix("]")


# ---------------------------------------------------------------------------------------------
# Mutated bytes

# Start and length of the bytes to replace, and the new bytes.
_Edit = tuple[int, int, bytes]


def mutations_of(message: Proto) -> st.SearchStrategy[bytes]:
    """The bytes of this message with some bytes changed, removed or inserted."""
    serialized = bytes(message.SerializeToString())
    edit = st.tuples(st.integers(0, len(serialized)), st.integers(0, 4), st.binary(max_size=4))
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(serialized, edits))


def _edited(serialized: bytes, edits: list[_Edit]) -> bytes:
    for start, length, inserted in edits:
        serialized = serialized[:start] + inserted + serialized[start + length :]
    return serialized
