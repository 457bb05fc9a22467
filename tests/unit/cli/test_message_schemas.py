"""Unit tests of proxyless.cli.message_schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from google.protobuf import descriptor_pb2

from proxyless.cli.message_schemas import SchemaError, find_method, make_pool, read_protosets
from tests.worlds.reflected_shop import FILES, GET, LIST, PUT, protoset

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("method", "streams"), [(GET, (False, False)), (LIST, (False, True)), (PUT, (True, False))]
)
def test_method_has_its_streams(method: str, streams: tuple[bool, bool]) -> None:
    schema = find_method(FILES, f"/{method}")
    assert (schema.is_client_streaming, schema.is_server_streaming) == streams


def test_json_is_encoded_and_decoded_with_well_known_types() -> None:
    schema = find_method(FILES, f"/{GET}")
    document = {
        "name": "tea",
        "price": {"cents": "42"},
        "sold_at": "2026-01-01T00:00:00Z",
    }
    serialized = schema.encode_request(json.dumps(document))
    assert json.loads(schema.decode_response(serialized)) == document


@pytest.mark.parametrize("text", ["", "{", '{"nmae": 1}', '{"name": 1}', "[" * 100_000])
def test_request_is_rejected_unless_it_is_the_message_in_json(text: str) -> None:
    with pytest.raises(SchemaError, match=r"request is not a shop\.Item in JSON"):
        find_method(FILES, f"/{GET}").encode_request(text)


def test_response_is_rejected_if_it_is_not_the_message() -> None:
    with pytest.raises(SchemaError, match=r"response is not a shop\.Item"):
        find_method(FILES, f"/{GET}").decode_response(b"\xff")


def test_unknown_service_and_method_are_named_with_those_that_exist() -> None:
    with pytest.raises(
        SchemaError, match=r'service "a\.B" has no descriptor, but there is "shop.Shop"'
    ):
        find_method(FILES, "/a.B/C")
    with pytest.raises(SchemaError, match='no method "Buy", but there is "Get", "List", "Put"'):
        find_method(FILES, "/shop.Shop/Buy")
    services = [f"s{number:02}" for number in range(12)]
    with pytest.raises(SchemaError, match=r'"s00", .*"s09" and 2 more services'):
        find_method({}, "/a.B/C", services)


def test_missing_import_is_named() -> None:
    with pytest.raises(SchemaError, match=r'descriptor of "shop/price.proto" is missing'):
        make_pool({"shop/shop.proto": FILES["shop/shop.proto"]})


def test_imports_may_be_a_long_chain_but_no_circle() -> None:
    length = 3000
    chain = {
        f"{number}.proto": descriptor_pb2.FileDescriptorProto(
            name=f"{number}.proto", dependency=[f"{number + 1}.proto"] if number < length else []
        )
        for number in range(length + 1)
    }
    make_pool(chain)
    chain[f"{length}.proto"].dependency.append("0.proto")
    with pytest.raises(SchemaError, match="imports itself"):
        make_pool(chain)


def test_protoset_is_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "shop.protoset"
    path.write_bytes(protoset())
    assert find_method(read_protosets([path]), f"/{GET}").path == f"/{GET}"
    path.write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="is not a descriptor set of protoc"):
        read_protosets([path])
