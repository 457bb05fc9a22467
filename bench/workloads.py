"""Workloads: the load of a client in one turn.

A workload is a closed loop: `concurrency` coroutines (threads for blocking clients), each of which
makes its next call when the last one has ended. A workload with a rate is an open loop: it starts
calls at that rate. An operation is one unary RPC, or one message of a server stream.
"""

from dataclasses import dataclass
from typing import Literal

KIB = 1024


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the benchmark."""

    name: str
    kind: Literal["unary", "stream", "blocking"]
    size_bytes: int
    concurrency: int
    # Enough to make the cost of opening a stream negligible; few enough to end a turn soon.
    messages_per_call: int = 1
    # The rate of an open loop, whose concurrency is not fixed.
    rate_per_s: float | None = None

    def request(self) -> bytes:
        """The message that makes the backend answer with messages of `size_bytes`."""
        if self.kind != "stream":
            return b"x" * self.size_bytes
        order = self.messages_per_call.to_bytes(4, "big") + self.size_bytes.to_bytes(4, "big")
        return b"\xffSTR" + order


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("unary-16B-1", "unary", 16, 1),
        Workload("unary-16B-16", "unary", 16, 16),
        Workload("unary-16B-100", "unary", 16, 100),
        Workload("open-16B-2000", "unary", 16, 1, rate_per_s=2000.0),
        Workload("unary-1KiB-100", "unary", KIB, 100),
        Workload("unary-64KiB-100", "unary", 64 * KIB, 100),
        Workload("stream-16B-1", "stream", 16, 1, messages_per_call=1000),
        Workload("stream-16B-16", "stream", 16, 16, messages_per_call=1000),
        Workload("stream-64KiB-1", "stream", 64 * KIB, 1, messages_per_call=200),
        Workload("blocking-16B-1", "blocking", 16, 1),
        Workload("blocking-16B-8", "blocking", 16, 8),
        Workload("blocking-16B-32", "blocking", 16, 32),
    )
}
