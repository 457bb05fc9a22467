"""Who says who the caller is?

Channel credentials are part of how a connection is made (`transport.ClientTls`). Call credentials
add metadata to each RPC and may have to wait for it: a token server, a signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode

_NOT_SECURE: Final = Status(
    StatusCode.UNAUTHENTICATED,
    "Established channel does not have a sufficient security level to transfer call credential.",
)

# Called once, on the channel's loop, with what was found or why there is nothing.
OnMetadata = Callable[[Metadata | Status], None]


class CallCredentials(Protocol):
    """Gives metadata for an RPC."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        """Find the metadata, now or later. A caller that has given up ignores the answer."""
        ...


class CombinedCredentials:
    """Several call credentials, one after the other; the first failure is the answer."""

    def __init__(self, parts: tuple[CallCredentials, ...]) -> None:
        self._parts = parts

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        self._next(0, EMPTY_METADATA, service_url, path, on_metadata)

    def _next(
        self, at: int, so_far: Metadata, service_url: str, path: str, on_metadata: OnMetadata
    ) -> None:
        if at == len(self._parts):
            on_metadata(so_far)
            return

        def on_part(found: Metadata | Status) -> None:
            if isinstance(found, Status):
                on_metadata(found)
            else:
                self._next(at + 1, so_far + found, service_url, path, on_metadata)

        self._parts[at].request(service_url, path, on_part)


class RefusedCredentials:
    """Call credentials on a channel that would show them to everybody."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        on_metadata(_NOT_SECURE)
