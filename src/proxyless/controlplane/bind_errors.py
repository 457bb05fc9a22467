"""Reason why an address cannot be bound, found before grpcio tries, which logs it without one."""

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
    """Bind the address for a moment; returns the reason of the failure, None if it can be bound.

    A name may have several addresses: as for grpcio, one that can be bound is enough.
    """
    if address.startswith(("unix:", "unix-abstract:")):
        # Binding would make a file. The usual reason is a directory that does not exist.
        path = address.removeprefix("unix:").removeprefix("//")
        parent = os.path.dirname(path)
        if address.startswith("unix:") and parent and not os.path.isdir(parent):
            return f"there is no directory {parent!r}"
        return None
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        # grpcio has names and a default for ports.
        return None
    reason = None
    try:
        places = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    for family, kind, protocol, _, place in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            reason = reason or _WORDS.get(error.errno or 0, error.strerror or str(error))
        else:
            return None
    return reason
