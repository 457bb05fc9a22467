"""Request messages of one RPC, kept until it is committed so that another attempt can send them.

Specs: A6 (which attempts need the messages again).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.wire import IDENTITY, compress

if TYPE_CHECKING:
    from proxyless.wire import ClientStream


class RequestBuffer:
    """The messages sent so far, their encoding, and the count of attempts. Changed by its call."""

    __slots__ = ("attempts", "encoding", "is_half_closed", "messages", "size_bytes")

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        # A list if the application sends a stream.
        self.messages: list[bytes] | tuple[bytes, ...] = ()
        self.size_bytes = 0
        # No message follows.
        self.is_half_closed = False
        # Attempts that were opened.
        self.attempts = 0

    @property
    def is_unary(self) -> bool:
        """Whether the RPC was started with its only message, and that is still here."""
        return isinstance(self.messages, tuple) and len(self.messages) == 1

    def add(self, message: bytes) -> None:
        if not isinstance(self.messages, list):
            self.messages = list(self.messages)
        self.messages.append(message)
        self.size_bytes += len(message)

    def find_larger(self, limit: float) -> int | None:
        """The size of the first message over the limit, if there is one."""
        return next((len(message) for message in self.messages if len(message) > limit), None)

    def send_all(self, stream: ClientStream) -> None:
        """Send everything so far on a new stream."""
        for message in self.messages[:-1]:
            self.send(stream, message)
        if self.messages:
            self.send(stream, self.messages[-1], end_stream=self.is_half_closed)
        elif self.is_half_closed:
            stream.close_sending()

    def send(self, stream: ClientStream, message: bytes, *, end_stream: bool = False) -> None:
        """Send one message. No-op if the stream has ended."""
        if stream.is_ended:
            return
        is_compressed = self.encoding != IDENTITY
        payload = compress(self.encoding, message) if is_compressed else message
        stream.send_message(payload, is_compressed=is_compressed, end_stream=end_stream)
