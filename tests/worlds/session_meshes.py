"""Mesh with stateful sessions, in virtual time."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Metadata
from proxyless.channel import Call
from proxyless.xds.filters.stateful_session import (
    STATEFUL_SESSION_TYPE,
    SessionCookie,
    StatefulSessionConfig,
)
from proxyless.xds.resources.filter import HttpFilter
from tests.worlds.channels import CallObserver
from tests.worlds.meshes import PATH, MeshWorld
from tests.worlds.xds_resources import listener

if TYPE_CHECKING:
    from proxyless.wire import StreamEnd
    from proxyless.xds.resources import Cluster, EndpointResource, Listener, RouteConfiguration


COOKIE: Final = SessionCookie("session")


def session_listener(cookie: SessionCookie = COOKIE) -> Listener:
    config = StatefulSessionConfig(cookie)
    return listener(http_filters=(HttpFilter("affinity", STATEFUL_SESSION_TYPE, config),))


def value_of(place: str) -> str:
    return b64encode(place.encode()).decode()


def cookie(place: str) -> Metadata:
    return (("cookie", f"session={value_of(place)}"),)


@dataclass
class SessionObserver(CallObserver):
    """Observer that collects the set-cookie values of responses."""

    cookies: list[str] = field(default_factory=list)

    def on_head(self, metadata: Metadata) -> None:
        super().on_head(metadata)
        self._collect(metadata)

    def on_end(self, end: StreamEnd) -> None:
        super().on_end(end)
        self._collect(end.trailers)

    def _collect(self, metadata: Metadata) -> None:
        self.cookies += [str(value) for key, value in metadata if key == "set-cookie"]


class SessionWorld(MeshWorld):
    """Mesh with a session filter."""

    def begin(
        self,
        *resources: Cluster | EndpointResource | RouteConfiguration,
        config: SessionCookie = COOKIE,
    ) -> None:
        self.publish(session_listener(config), *resources)
        self.channel.request_connection()
        self.settle()

    def open(
        self, metadata: Metadata = (), path: str = PATH, *, wait_for_ready: bool = False
    ) -> tuple[Call, SessionObserver]:
        observer = SessionObserver()
        method = self.channel.method(path)
        call = Call(self.channel, method, observer, metadata, None, wait_for_ready)
        call.start_unary(b"request")
        self.settle()
        return call, observer

    def exchange(self, metadata: Metadata = (), path: str = PATH) -> tuple[str, list[str]]:
        """Send an RPC that must succeed; return its address and the set-cookie values."""
        _, observer = self.open(metadata, path)
        [(address, _)] = self.open_streams
        self.respond_to_all()
        assert observer.status == OK
        return address, observer.cookies
