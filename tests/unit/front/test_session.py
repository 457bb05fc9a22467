"""Do the RPCs of a session tell it what they hear, before anybody else?"""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.front.session import Session
from proxyless.runtime import VirtualClock
from proxyless.wire import StreamEnd

PLACE = b64encode(b"10.0.0.1:80;web").decode()
SET: Metadata = (("set-cookie", f"s={PLACE}; HttpOnly"),)


class Application:
    """Notes what it hears, and where the session lived then."""

    def __init__(self, session: Session) -> None:
        self.heard: list[tuple[object, ...]] = []
        self._session = session

    def _note(self, *what: object) -> None:
        self.heard.append((*what, self._session.backend(lambda: 0.0)))

    def on_head(self, metadata: Metadata) -> None:
        self._note("head", metadata)

    def on_message(self, message: bytes) -> None:
        self._note("message", message)

    def on_writable(self) -> None:
        self._note("writable")

    def on_end(self, end: StreamEnd) -> None:
        self._note("end", end)


class World:
    """A session, and an RPC of it."""

    def __init__(self) -> None:
        self.session = Session()
        self.application = Application(self.session)
        # All of a call that a session touches.
        self.call = cast("Any", SimpleNamespace(observer=self.application))
        header, sent = self.session.choose("/a/b", lambda: 0.0)
        assert (header, sent) == ((), ())
        self.session.join(self.call, sent, VirtualClock())


@pytest.fixture
def world() -> World:
    return World()


def test_a_head_is_heard_by_the_session_first(world: World) -> None:
    observer, end = world.call.observer, StreamEnd(OK)
    observer.on_writable()
    observer.on_head(SET)
    observer.on_message(b"x")
    observer.on_end(end)
    assert world.application.heard == [
        ("writable", None),
        ("head", SET, "10.0.0.1:80"),
        ("message", b"x", "10.0.0.1:80"),
        ("end", end, "10.0.0.1:80"),
    ]
    assert world.session.cluster(lambda: 0.0) == "web"
    assert world.session.choose("/a/b", lambda: 0.0)[0] == (("cookie", f"s={PLACE}"),)


def test_trailers_count_if_they_are_all_there_is(world: World) -> None:
    end = StreamEnd(Status(StatusCode.NOT_FOUND, "no"), SET)
    world.call.observer.on_end(end)
    assert world.application.heard == [("end", end, "10.0.0.1:80")]


def test_trailers_do_not_count_after_a_head(world: World) -> None:
    world.call.observer.on_head(())
    world.call.observer.on_end(StreamEnd(OK, SET))
    assert world.session.backend(lambda: 0.0) is None
    assert world.session.cluster(lambda: 0.0) is None


def test_a_place_without_a_cluster_has_none(world: World) -> None:
    value = b64encode(b"10.0.0.1:80;").decode()
    world.call.observer.on_head((("set-cookie", f"s={value}"),))
    assert world.session.backend(lambda: 0.0) == "10.0.0.1:80"
    assert world.session.cluster(lambda: 0.0) is None
