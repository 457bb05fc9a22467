"""Ports for servers that another process starts, or that start again."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import randrange  # noqa: TID251 - another port in each run


def free_port() -> int:
    """A free port below the system's ephemeral range, so that no other process gets it."""
    while True:
        port = randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
