"""Hooks that run in the child after a fork, on platforms that have fork.

The child of a fork has copies of all connections of its parent, on the same sockets. What it sent
there, or a poll from which it removed them, would be the parent's; and a socket that the parent
closes stays open while a child holds it. So the child releases them at once: the descriptor of
each connection becomes that of a socket whose peer has closed it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable


class SocketOwner(Protocol):
    """The connections of one loop."""

    def list_descriptors(self) -> list[int]:
        """The descriptors of all sockets that are neither closed nor closing."""


def call_after_fork_in_child(action: Callable[[], None]) -> None:
    """Register `action` for the rest of the process. No-op without fork (Windows)."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(after_in_child=action)


def empty_in_child(objects_by_loop: dict[Any, Any]) -> None:
    """Empty this map in each child of a fork. Its objects are not freed: their loops exist."""
    inherited: list[dict[Any, Any]] = []

    def empty() -> None:
        inherited.append(objects_by_loop.copy())
        objects_by_loop.clear()

    call_after_fork_in_child(empty)


def release_in_child(owner: SocketOwner) -> None:
    """Release the sockets of these connections in each child of a fork."""
    _owners.add(owner)


_owners: Final[WeakSet[SocketOwner]] = WeakSet()


def _release_sockets() -> None:
    # A number that is free could be that of another file by the time a transport closes it.
    descriptors = [each for owner in list(_owners) for each in owner.list_descriptors()]
    _owners.clear()
    if not descriptors:
        return
    with suppress(OSError):  # No descriptor is left.
        closed, peer = socket.socketpair()
        peer.close()
        closed.setblocking(False)
        for each in descriptors:
            os.dup2(closed.fileno(), each, inheritable=False)
        closed.close()


call_after_fork_in_child(_release_sockets)
