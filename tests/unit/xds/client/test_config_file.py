"""Unit tests of proxyless.xds.client.config_file."""

import hashlib
import json

import pytest

from proxyless.xds.bootstrap import Authority, Bootstrap, ChannelCreds, Node, ServerConfig
from proxyless.xds.client.config_file import (
    MAGIC,
    ClientIdentity,
    SavedResource,
    decode_config,
    encode_config,
)


def server(uri: str) -> ServerConfig:
    return ServerConfig(uri, ChannelCreds("insecure"))


NODE = Node("edge-7", "shop", metadata={"token": "confidential", "list": (1, 2)})
BOOTSTRAP = Bootstrap(servers=(server("a:1"),), node=NODE)
IDENTITY = ClientIdentity.of(BOOTSTRAP, "xds:///api")
SAVED = {
    ("type/Listener", "api"): SavedResource("7", b"\x00listener\n", 100.5),
    ("type/Cluster", "pool"): SavedResource("8", b"", 101.0),
}


def test_resources_are_read_as_they_were_written() -> None:
    assert decode_config(encode_config(IDENTITY, SAVED), IDENTITY) == SAVED


@pytest.mark.spec("CACHE-04")
def test_every_damaged_byte_and_every_truncation_is_detected() -> None:
    content = encode_config(IDENTITY, SAVED)
    for at in range(len(content)):
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        for damaged in (flipped, content[:at]):
            with pytest.raises(ValueError, match=r"is (damaged|no config cache)"):
                decode_config(damaged, IDENTITY)


@pytest.mark.spec("CACHE-04")
@pytest.mark.parametrize(
    "other",
    [
        ClientIdentity.of(BOOTSTRAP, "xds:///web"),
        ClientIdentity.of(Bootstrap(servers=(server("b:1"),), node=NODE), "xds:///api"),
        ClientIdentity.of(Bootstrap(servers=(server("a:1"),), node=Node("edge-8")), "xds:///api"),
        ClientIdentity.of(
            Bootstrap(
                servers=(server("a:1"),),
                node=NODE,
                authorities={"x": Authority((server("c:1"),), "xdstp://x/%s")},
            ),
            "xds:///api",
        ),
    ],
    ids=["target", "server", "node", "authority"],
)
def test_file_of_another_client_is_rejected(other: ClientIdentity) -> None:
    assert other.file_name != IDENTITY.file_name
    with pytest.raises(ValueError, match="is of another node, server or target"):
        decode_config(encode_config(other, SAVED), IDENTITY)


def test_equal_bootstraps_have_one_identity() -> None:
    again = Bootstrap(servers=(server("a:1"),), node=NODE)
    assert ClientIdentity.of(again, "xds:///api") == IDENTITY


@pytest.mark.spec("CACHE-05")
def test_node_metadata_is_not_in_the_file() -> None:
    content = encode_config(IDENTITY, SAVED)
    assert b"confidential" not in content
    assert b"edge-7" in content


def resigned(header: object, body: bytes = b"") -> bytes:
    """A file with a right checksum and this content."""
    rest = json.dumps(header).encode() + b"\n" + body
    return MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        {"identity": IDENTITY.digest},
        {"identity": IDENTITY.digest, "resources": 7},
        {"identity": IDENTITY.digest, "resources": [[1, 2]]},
        {"identity": IDENTITY.digest, "resources": [["t", "n", "v", "x", 0]]},
        {"identity": IDENTITY.digest, "resources": [["t", "n", "v", 1, 0]]},
        {"identity": IDENTITY.digest, "resources": [["t", "n", "v", 0, 0]] * 25_001},
    ],
)
def test_file_with_another_structure_is_rejected(header: object) -> None:
    with pytest.raises(ValueError, match="is damaged: "):
        decode_config(resigned(header), IDENTITY)
