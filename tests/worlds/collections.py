"""A collection type with members of text, for tests of the xDS client."""

from collections.abc import Mapping
from types import MappingProxyType

from proxyless.runtime.work_queue import finish
from proxyless.xds.client import DecodeContext, Decoded
from proxyless.xds.client.codec import decode_members_in_steps
from proxyless.xds.error_texts import name_resource

DIRECTORY = "xdstp://mesh/test.v3.LbEndpoint/cart"
GLOB = f"{DIRECTORY}/*"


class MemberType:
    """Collection type whose members are texts; "bad" is invalid, "idle" is valid and not used."""

    type_url = "type.googleapis.com/test.v3.LbEndpoint"
    is_full_state = False
    members_max = 5

    def __init__(self) -> None:
        self.decoded = 0

    def decode_member(self, name: str, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        self.decoded += 1
        if serialized == b"bad":
            return Decoded(name, error=f"{name_resource(self.type_url, name)}: is bad")
        return Decoded(name, None if serialized == b"idle" else serialized.decode())

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[Mapping[str, str]]:
        raw = finish(decode_members_in_steps(serialized))
        assert raw is not None
        return Decoded("", MappingProxyType({name: value.decode() for name, value in raw}))


MEMBERS = MemberType()


def member(name: str, value: str = "v1", version: str = "1") -> tuple[str, str, bytes]:
    return f"{DIRECTORY}/{name}", version, value.encode()
