"""Reason why an address cannot be bound, which grpcio's own error does not have."""

from __future__ import annotations

import errno
import os
import socket

_WORDS = {
    errno.EADDRINUSE: "address in use: another process listens there, choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied: ports below 1024 are the system's",
}


def find_bind_error(address: str) -> str | None:
    """Bind the address once more and return the reason of the failure; None if there is none."""
    if address.startswith(("unix:", "unix-abstract:")):
        # Binding would make a file. The usual reason is a directory that does not exist.
        path = address.removeprefix("unix:").removeprefix("//")
        parent = os.path.dirname(path)
        if address.startswith("unix:") and parent and not os.path.isdir(parent):
            return f"there is no directory {parent!r}"
        return None
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        return _WORDS.get(error.errno or 0, error.strerror or str(error))
    return None
