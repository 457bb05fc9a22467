"""HTTP CONNECT: encodes the request and parses the response of a proxy (pure).

Specs: A1, A86; RFC 9110, 9.3.6 (CONNECT).

Everything after the head of the response belongs to the tunnel; "a client MUST ignore any
Content-Length or Transfer-Encoding header fields received in a successful response to CONNECT" -
RFC 9110. Other header fields are ignored, and the size of the head is limited.
"""

import re
from typing import Final

from proxyless.base import one_line
from proxyless.base.frozen import frozen

# Typical heads have a few hundred bytes.
HEAD_BYTES_MAX: Final = 16 * 1024

_VERSION: Final = b"HTTP/1."
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
# "a recipient MAY recognize a single LF as a line terminator" - RFC 9112
_END: Final = re.compile(rb"\r?\n\r?\n")
_END_BYTES_MAX: Final = len(b"\r\n\r\n")
_OK: Final = range(200, 300)
# Limit of texts of the proxy in errors.
_SHOWN_MAX: Final = 80


def encode_connect(target: str, authorization: str = "") -> bytes:
    """The request for a tunnel to host:port."""
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization:
        lines.append(f"Proxy-Authorization: {authorization}")
    text = "\r\n".join(lines)
    assert text.count("\r") == text.count("\n") == len(lines) - 1, "names are validated before"
    return f"{text}\r\n\r\n".encode("ascii")


@frozen
class Accepted:
    """The tunnel is open."""

    # Data after the head.
    rest: bytes


@frozen
class Refused:
    """There is no tunnel."""

    why: str


class ConnectResponse:
    """Incremental parser of the response. Not used after a verdict."""

    def __init__(self) -> None:
        self._head = bytearray()

    def receive(self, data: bytes) -> Accepted | Refused | None:
        """The verdict; None while the head is incomplete."""
        searched_bytes = max(len(self._head) - _END_BYTES_MAX, 0)
        self._head += data
        if not self._head.startswith(_VERSION[: len(self._head)]):
            return Refused(f"answered CONNECT with {_show(self._head)}, which is not HTTP/1")
        end = _END.search(self._head, searched_bytes)
        head_bytes = len(self._head) if end is None else end.end()
        if head_bytes > HEAD_BYTES_MAX:
            return Refused(f"answered CONNECT with a head of more than {HEAD_BYTES_MAX} bytes")
        return None if end is None else self._parse_status(end.end())

    def on_end(self) -> Refused:
        """The proxy closed the connection."""
        if not self._head:
            return Refused("closed the connection without an answer to CONNECT")
        return Refused(f"closed the connection after {len(self._head)} bytes of its answer")

    def _parse_status(self, end: int) -> Accepted | Refused:
        line = _STATUS_LINE.match(self._head)
        if line is None:
            return Refused(f"answered CONNECT with {_show(self._head)}, wanted a status line")
        status, reason = int(line[1]), one_line((line[2] or b"").decode("latin-1"), _SHOWN_MAX)
        if status not in _OK:
            shown = f"{status} {reason}".rstrip()
            return Refused(f"answered CONNECT with HTTP status {shown!r}, wanted 200 to 299")
        return Accepted(bytes(self._head[end:]))


def _show(head: bytearray) -> str:
    return repr(bytes(head[:_SHOWN_MAX]))[1:]
