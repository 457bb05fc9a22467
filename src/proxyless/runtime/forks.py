"""Hooks that run in the child after a fork, on platforms that have fork.

The child of a fork has copies of all connections of its parent, on the same sockets. What it sent
there would be sent in the parent's name, a socket that it removed from a poll would be removed for
the parent as well, and a socket that the parent closes stays open while a child holds it. So the
child releases all of them at once, including those that are being connected: their descriptors are
replaced by those of a socket whose peer has closed it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def call_after_fork_in_child(action: Callable[[], None]) -> None:
    """Register `action` for the rest of the process. No-op without fork (Windows)."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(after_in_child=action)


def one_per_process(make: Callable[[], T]) -> Callable[[], T]:
    """Returns the object of this process; the child of a fork makes one of its own."""
    made = [make()]

    def renew() -> None:
        made[0] = make()

    call_after_fork_in_child(renew)
    return lambda: made[0]


def empty_in_child(objects_by_loop: dict[Any, Any]) -> None:
    """Empty this map in each child of a fork. Its objects are not freed: their loops exist."""
    inherited: list[dict[Any, Any]] = []

    def empty() -> None:
        inherited.append(objects_by_loop.copy())
        objects_by_loop.clear()

    call_after_fork_in_child(empty)


class UnsharedSocket(socket.socket):
    """Socket of a connection, which each child of a fork releases. Its owner closes it."""

    __slots__ = ()

    def __init__(
        self,
        family: int = -1,
        type: int = -1,  # noqa: A002 - as in the standard library
        proto: int = -1,
        fileno: int | None = None,
    ) -> None:
        super().__init__(family, type, proto, fileno)
        _open_sockets.add(self)

    def close(self) -> None:
        _open_sockets.discard(self)
        super().close()

    def detach(self) -> int:
        _open_sockets.discard(self)
        return super().detach()


_open_sockets: Final[set[UnsharedSocket]] = set()


def _release_sockets() -> None:
    descriptors = [each.fileno() for each in _open_sockets]
    _open_sockets.clear()
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
