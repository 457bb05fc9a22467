"""Direct writes to the socket of an asyncio transport, past the transport's own buffer.

A transport closes its socket at the first write error, and then responses that the kernel received
before are never read. uvloop writes at the end of a turn, so after its `write` it is unknown which
bytes have left the process. A direct write returns how many bytes the kernel has taken, or raises
OSError, and the socket can still be read.
"""

import asyncio
import os
import select
from typing import Final

# The descriptor of a transport that has no socket of its own to write to.
NO_DESCRIPTOR: Final = -1

write_directly: Final = os.write

# Linux has it. Elsewhere only resets are reported.
_PEER_CLOSED: Final = getattr(select, "POLLRDHUP", 0)


def direct_descriptor(transport: asyncio.BaseTransport) -> int:
    """Descriptor for `write_directly`; NO_DESCRIPTOR with TLS, and without a POSIX socket.

    It is valid until the transport has called `connection_lost` of its protocol. The caller writes
    to it only while the transport's own buffer is empty.
    """
    read = transport.get_extra_info
    if os.name != "posix" or read("sslcontext") or read("ssl_object"):
        return NO_DESCRIPTOR
    socket = read("socket")
    return NO_DESCRIPTOR if socket is None else int(socket.fileno())


def is_closed_by_peer(descriptor: int) -> bool:
    """Whether the peer has closed or reset the connection, even if its data is still unread."""
    poll = select.poll()
    poll.register(descriptor, _PEER_CLOSED)
    return bool(poll.poll(0))
