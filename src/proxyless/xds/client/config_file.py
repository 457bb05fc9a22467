"""Format of a config cache file: saved resources with a checksum and the identity of their client.

A file has a magic line, the SHA-256 of the rest in hex, a line of JSON, and the resources' bytes.
The identity is a digest, because node metadata may be confidential; servers, node id and target are
there as text for readers of the file only.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.xds.client.api import RESOURCES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client.cache import ResourceKey

MAGIC: Final = b"proxyless config cache 1\n"
_DIGEST_LENGTH: Final = 64
_DECODE_ERRORS: Final = (ValueError, TypeError, KeyError, RecursionError)


@frozen
class SavedResource:
    """A resource as it was accepted."""

    version: str
    serialized: bytes
    # Unix time at which it was last in use with a server that answered.
    saved_s: float


@frozen
class ClientIdentity:
    """Identity of a client: servers, node and target. Others do not use its saved resources."""

    digest: str
    # For readers of the file.
    about: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, bootstrap: Bootstrap, target: str) -> ClientIdentity:
        """`target` is empty for a client that several targets share."""
        node, locality = bootstrap.node, bootstrap.node.locality
        servers = [server.uri for server in bootstrap.servers]
        others = {
            name: [server.uri for server in authority.servers]
            for name, authority in sorted(bootstrap.authorities.items())
        }
        parts = (
            servers,
            others,
            (node.id, node.cluster, locality.region, locality.zone, locality.sub_zone),
            node.metadata,
            target,
        )
        text = json.dumps(parts, sort_keys=True, default=_to_json)
        about = (("servers", tuple(servers)), ("node", node.id), ("target", target))
        return cls(hashlib.sha256(text.encode()).hexdigest(), about)

    @property
    def file_name(self) -> str:
        return f"{self.digest[:32]}.xds"


def _to_json(value: Any) -> Any:  # noqa: ANN401 - immutable copies of JSON values
    return dict(value) if hasattr(value, "keys") else list(value)


def encode_config(
    identity: ClientIdentity, resources: Mapping[ResourceKey, SavedResource]
) -> bytes:
    index = [
        (*key, saved.version, len(saved.serialized), saved.saved_s)
        for key, saved in resources.items()
    ]
    header = {"identity": identity.digest, "about": dict(identity.about), "resources": index}
    contents = (saved.serialized for saved in resources.values())
    rest = b"".join((json.dumps(header).encode(), b"\n", *contents))
    return b"".join((MAGIC, hashlib.sha256(rest).hexdigest().encode(), b"\n", rest))


def decode_config(content: bytes, identity: ClientIdentity) -> dict[ResourceKey, SavedResource]:
    """Raise ValueError, with the reason, if the file is damaged or another client's."""
    if not content.startswith(MAGIC):
        raise ValueError("is no config cache of this version")
    start = len(MAGIC) + _DIGEST_LENGTH + 1
    rest = content[start:]
    if hashlib.sha256(rest).hexdigest().encode() + b"\n" != content[len(MAGIC) : start]:
        raise ValueError("is damaged: its checksum is wrong")
    head, _, body = rest.partition(b"\n")
    try:
        header = json.loads(head)
        digest, resources = header["identity"], _split(header["resources"], body)
    except _DECODE_ERRORS as error:
        raise ValueError(f"is damaged: {error!r}") from None
    if digest != identity.digest:
        raise ValueError("is of another node, server or target")
    return resources


def _split(index: list[list[Any]], body: bytes) -> dict[ResourceKey, SavedResource]:
    if len(index) > RESOURCES_MAX:
        raise ValueError(f"has {len(index)} resources, wanted at most {RESOURCES_MAX}")
    resources: dict[ResourceKey, SavedResource] = {}
    start = 0
    for type_url, name, version, size, saved_s in index:
        end = start + int(size)
        saved = SavedResource(str(version), body[start:end], float(saved_s))
        resources[str(type_url), str(name)] = saved
        start = end
    if start != len(body):
        raise ValueError(f"has {len(body)} bytes of resources, wanted {start}")
    return resources
