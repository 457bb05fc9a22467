"""Peers on blocking sockets, in threads of their own: they answer calls, and reset connections."""

import socket
import struct
import threading
from contextlib import suppress

from proxyless.wire import frames as kinds
from tests.worlds.transports import PATIENCE_S
from tests.worlds.wire import PREFACE, answer, read_frames, settings


def reset(peer: socket.socket) -> None:
    """Close a socket with RST. What it has sent is still delivered."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


class ResettablePeer:
    """Answers unary calls with its name in a thread, until it resets its connection."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return "127.0.0.1:{1}".format(*self._listener.getsockname())

    def _run(self) -> None:
        peer, _ = self._listener.accept()
        peer.settimeout(0.01)
        peer.sendall(settings())
        received = b""
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                received += peer.recv(65536)
            received = received.removeprefix(PREFACE)
            if received and not PREFACE.startswith(received):
                found, received = list(read_frames(received)), b""
                calls = [each.stream_id for each in found if each.kind == kinds.HEADERS]
                peer.sendall(b"".join(answer(each, self._name) for each in calls))
        self._listener.close()
        reset(peer)

    def reset(self) -> None:
        """Reset the connection, and accept no other one."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
