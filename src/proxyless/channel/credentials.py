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
# Nobody wants the answer any more. Does nothing after it.
Withdraw = Callable[[], None]


def service_url(authority: str, path: str) -> str:
    """The URL of a method's service, for call credentials."""
    return f"https://{authority.removesuffix(':443')}{path[: path.rfind('/')]}"


class CallCredentials(Protocol):
    """Gives metadata for an RPC."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw | None:
        """Find the metadata, now or later. A caller that has given up ignores the answer.

        Returns what spares the work then; None if there is nothing to spare, as after an answer.
        """
        ...


class CombinedCredentials:
    """Several call credentials, one after the other; the first failure is the answer."""

    def __init__(self, parts: tuple[CallCredentials, ...]) -> None:
        self._parts = parts

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw | None:
        under_way: list[Withdraw] = []

        def ask(at: int, so_far: Metadata) -> None:
            if at == len(self._parts):
                on_metadata(so_far)
                return

            def on_part(found: Metadata | Status) -> None:
                if isinstance(found, Status):
                    on_metadata(found)
                else:
                    ask(at + 1, so_far + found)

            withdraw = self._parts[at].request(service_url, path, on_part)
            if withdraw is not None:
                under_way[:] = [withdraw]

        def withdraw() -> None:
            under_way[0]()

        ask(0, EMPTY_METADATA)
        return withdraw if under_way else None


class RefusedCredentials:
    """Call credentials on a channel that would show them to everybody."""

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        on_metadata(_NOT_SECURE)
