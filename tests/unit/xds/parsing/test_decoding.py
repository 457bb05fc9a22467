"""Decoding: any bytes give a resource or one error text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.protos import Proto, message_class
from proxyless.runtime.work_queue import Steps, finish
from proxyless.xds.client.api import Decoded
from proxyless.xds.error_texts import name_type
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.parsing import ListenerType, RouteConfigurationType
from proxyless.xds.parsing.decoding import decode_resource
from tests.unit.xds.parsing.messages import context, route, routes

CLUSTER = "envoy.config.cluster.v3.Cluster"
ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"
TYPES = (
    ListenerType(FilterRegistry(FILTER_FACTORIES)),
    RouteConfigurationType(FilterRegistry(FILTER_FACTORIES)),
)


def parse_name(message: Proto, _errors: ValidationErrors) -> Steps[str]:
    yield from ()
    return f"parsed {message.name}"


def parse_cluster_name(message: Proto, _errors: ValidationErrors) -> Steps[str]:
    yield from ()
    return str(message.cluster_name)


def reject(_message: Proto, errors: ValidationErrors) -> Steps[None]:
    yield from ()
    with errors.field("lb_policy"):
        errors.add("unsupported value 9")


def cluster(name: str) -> bytes:
    return bytes(message_class(CLUSTER)(name=name).SerializeToString())


def test_decoded_resource_is_the_result_of_the_parser() -> None:
    decoded = finish(decode_resource(CLUSTER, cluster("a"), parse_name))
    assert decoded == Decoded("a", "parsed a")


def test_decoded_error_has_the_errors_of_the_parser() -> None:
    decoded: Decoded[None] = finish(decode_resource(CLUSTER, cluster("payments"), reject))
    assert decoded == Decoded(
        "payments", error='cluster "payments": [field:lb_policy error:unsupported value 9]'
    )


def test_resource_without_name_is_an_error() -> None:
    decoded = finish(decode_resource(CLUSTER, b"", parse_name))
    assert decoded == Decoded(
        "", error='cluster "": [field:name error:is empty, wanted the resource\'s name]'
    )


def test_name_is_read_from_the_given_field() -> None:
    serialized = message_class(ASSIGNMENT)(cluster_name="a").SerializeToString()
    decoded = finish(
        decode_resource(ASSIGNMENT, serialized, parse_cluster_name, name_field="cluster_name")
    )
    assert decoded == Decoded("a", "a")


def test_undecodable_bytes_are_an_error() -> None:
    for kind in TYPES:
        decoded = kind.decode(b"\xff", context())
        name = kind.type_url.removeprefix("type.googleapis.com/")
        assert decoded == Decoded("", error=f"{name_type(name)}: cannot be decoded as {name}")


def wrap(tag: int, payload: bytes) -> bytes:
    """A length-delimited field with this payload."""
    length, size = bytearray(), len(payload)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((tag, *length, size)) + payload


def nested_struct(depth: int) -> bytes:
    """The value of a TypedStruct: Structs nested in Values, `depth` times."""
    struct = b""
    for _ in range(depth):
        value = wrap(0x2A, struct)
        struct = wrap(0x0A, wrap(0x12, value))
    return wrap(0x12, struct)


def test_deeply_nested_messages_are_an_error() -> None:
    typed_struct = message_class("xds.type.v3.TypedStruct")(type_url="host/own.Filter")
    message = routes(route())
    override = message.virtual_hosts[0].typed_per_filter_config["own"]
    override.type_url = "host/xds.type.v3.TypedStruct"
    errors = {}
    for depth in (30, 5_000):
        override.value = typed_struct.SerializeToString() + nested_struct(depth)
        errors[depth] = TYPES[1].decode(message.SerializeToString(), context()).error
    assert errors[30].endswith("error:is of type 'own.Filter', wanted one of a known filter]")
    assert errors[5_000].endswith("error:cannot be decoded as xds.type.v3.TypedStruct]")


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_give_a_resource_or_an_error(serialized: bytes) -> None:
    for kind in TYPES:
        decoded = kind.decode(serialized, context())
        assert (decoded.resource is None) == bool(decoded.error)


@given(st.data())
@settings(max_examples=300)
def test_damaged_bytes_give_a_resource_or_an_error(data: st.DataObject) -> None:
    serialized = bytearray(routes(route(timeout="1s"), route(cluster="b")).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(serialized) - 1))
        serialized[at] = data.draw(st.integers(0, 255))
    decoded = TYPES[1].decode(bytes(serialized), context())
    assert (decoded.resource is None) == bool(decoded.error)
