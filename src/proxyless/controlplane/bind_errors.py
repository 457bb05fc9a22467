"""Reason why an address cannot be bound, found before grpcio tries, which logs it without one."""

from __future__ import annotations

import errno
import os
import socket
import stat

_WORDS = {
    errno.EADDRINUSE: "address in use: another process listens there, choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied: ports below 1024 are the system's",
}


def describe_bind_error(error: OSError) -> str:
    return _WORDS.get(error.errno or 0, error.strerror or str(error))


def find_bind_error(address: str) -> str | None:
    """Bind the address for a moment; returns the reason of the failure, None if it can be bound.

    A name may have several addresses: as for grpcio, one that can be bound is enough.
    """
    if address.startswith(("unix:", "unix-abstract:")):
        return _find_unix_error(address)
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
            reason = reason or describe_bind_error(error)
        else:
            return None
    return reason


def _find_unix_error(address: str) -> str | None:
    """Connect, because binding would make a file, and grpcio takes over a socket that is in use."""
    scheme, _, name = address.partition(":")
    path = name.removeprefix("//")
    parent = os.path.dirname(path)
    is_file = scheme == "unix"
    if is_file and parent and not os.path.isdir(parent):
        return f"there is no directory {parent!r}"
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path if is_file else f"\0{name}")
        except (FileNotFoundError, ConnectionRefusedError):
            if is_file and os.path.exists(path) and not stat.S_ISSOCK(os.stat(path).st_mode):
                return "there is a file, which is no socket"
            return None  # A socket that an earlier process has left is replaced.
        except OSError as error:
            return error.strerror or str(error)
    return _WORDS[errno.EADDRINUSE].replace("port", "path")
