"""Call credentials: metadata that authenticates each RPC.

They may have to wait for the metadata, for example for a token server. Channel credentials are part
of how a connection is made (`transport.ClientTls`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode

_NOT_SECURE: Final = Status(
    StatusCode.UNAUTHENTICATED,
    "Established channel does not have a sufficient security level to transfer call credential.",
)

# Called once, on the channel's loop, with the metadata or an error.
OnMetadata = Callable[[Metadata | Status], None]
# Cancels the request. No-op after the answer.
Withdraw = Callable[[], None]


def service_url(authority: str, path: str) -> str:
    """The URL of a method's service, for call credentials."""
    return f"https://{authority.removesuffix(':443')}{path[: path.rfind('/')]}"


class CallCredentials(Protocol):
    """Source of metadata for RPCs."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw | None:
        """Call back with the metadata, now or later.

        Returns a callable that cancels the request; None if it is answered or cannot be cancelled.
        The caller ignores an answer after that.
        """


class CombinedCredentials:
    """Several call credentials, requested one after the other, up to the first failure."""

    def __init__(self, parts: tuple[CallCredentials, ...]) -> None:
        self._parts = parts

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw | None:
        pending: list[Withdraw] = []

        def request_part(at: int, so_far: Metadata) -> None:
            if at == len(self._parts):
                on_metadata(so_far)
                return

            def on_part(found: Metadata | Status) -> None:
                if isinstance(found, Status):
                    on_metadata(found)
                else:
                    request_part(at + 1, so_far + found)

            withdraw = self._parts[at].request(service_url, path, on_part)
            if withdraw is not None:
                pending[:] = [withdraw]

        def withdraw() -> None:
            pending[0]()

        request_part(0, EMPTY_METADATA)
        return withdraw if pending else None


class RefusedCredentials:
    """Fails every RPC: call credentials on a channel that is not confidential."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        on_metadata(_NOT_SECURE)
