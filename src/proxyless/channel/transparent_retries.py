"""TransparentRetries: replacement of streams that the server never saw (pure).

Specs: A6 (transparent retries).
"""

from typing import Final

from proxyless.base import EMPTY_METADATA, Metadata
from proxyless.base.frozen import frozen

PREVIOUS_ATTEMPTS_KEY: Final = "grpc-previous-rpc-attempts"

# Retries of streams that did not reach a server. A6 has no limit; this one ends endless loops.
TRANSPARENT_RETRIES_MAX: Final = 100


@frozen
class TransparentRetries:
    """Count of the streams of an RPC that were replaced because the server never saw them."""

    count: int = 0
    # Whether one of them had reached the server: A6 allows one of these.
    had_reached: bool = False

    def count_attempts(self, started: int) -> Metadata:
        """Metadata with the number of previous attempts. Replaced streams do not count."""
        previous = started - 1 - self.count
        return ((PREVIOUS_ATTEMPTS_KEY, str(previous)),) if previous else EMPTY_METADATA

    def following(self, *, is_retry_free: bool) -> "TransparentRetries | None":
        """The count with one more retry; None if that is one too many."""
        if is_retry_free:
            # "the client library can transparently retry until a success occurs, or the RPC's
            # deadline passes" - A6
            if self.count >= TRANSPARENT_RETRIES_MAX:
                return None
            return TransparentRetries(self.count + 1, self.had_reached)
        # "If the RPC reaches the gRPC server library, but has never been seen by the server
        # application logic …, the client library will immediately retry it once" - A6
        return None if self.had_reached else TransparentRetries(self.count + 1, True)


NO_RETRIES: Final = TransparentRetries()
