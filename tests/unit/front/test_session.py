"""Unit tests of proxyless.front.session."""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.front.session import SessionApi, SessionCookies
from proxyless.runtime import VirtualClock
from proxyless.wire import StreamEnd
from proxyless.wire.messages import Unpacking
from proxyless.xds.filters.session_filter import SessionSetCookie

ENDPOINT = b64encode(b"10.0.0.1:80;web").decode()
SET: Metadata = (("set-cookie", SessionSetCookie(f"s={ENDPOINT}; HttpOnly")),)


class Observer:
    """Observer that records its calls with the backend of the session."""

    def __init__(self, session: SessionApi) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._session = session

    def _record(self, *call: object) -> None:
        self.calls.append((*call, self._session.backend))

    def on_head(self, metadata: Metadata) -> None:
        self._record("head", metadata)

    def choose_unpacking(self) -> Unpacking:
        self._record("choose_unpacking")
        return Unpacking.ON_READ

    def on_message(self, message: bytes) -> None:
        self._record("message", message)

    def on_writable(self) -> None:
        self._record("writable")

    def on_end(self, end: StreamEnd) -> None:
        self._record("end", end)


class Session(SessionApi):
    """A session without a channel."""

    def __init__(self) -> None:
        self.cookies = SessionCookies()

    def _now_s(self) -> float:
        return 0.0


class FrontSessionWorld:
    """A session, and one of its RPCs."""

    def __init__(self) -> None:
        self.session = Session()
        self.observer = Observer(self.session)
        # The part of a call that a session uses.
        self.call = cast("Any", SimpleNamespace(observer=self.observer))
        header, sent = self.session.cookies.choose("/a/b", lambda: 0.0)
        assert (header, sent) == ((), ())
        self.session.cookies.observe(self.call, sent, VirtualClock())


@pytest.fixture
def world() -> FrontSessionWorld:
    return FrontSessionWorld()


def test_cookies_of_a_head_are_taken_before_the_observer_is_called(
    world: FrontSessionWorld,
) -> None:
    observer, end = world.call.observer, StreamEnd(OK)
    observer.on_writable()
    observer.on_head(SET)
    observer.on_message(b"x")
    observer.on_end(end)
    assert world.observer.calls == [
        ("writable", None),
        ("head", SET, "10.0.0.1:80"),
        ("message", b"x", "10.0.0.1:80"),
        ("end", end, "10.0.0.1:80"),
    ]
    assert world.session.cluster == "web"
    assert world.session.cookies.choose("/a/b", lambda: 0.0)[0] == (("cookie", f"s={ENDPOINT}"),)


def test_observer_chooses_when_compressed_messages_are_unpacked(world: FrontSessionWorld) -> None:
    assert world.call.observer.choose_unpacking() is Unpacking.ON_READ
    assert world.observer.calls == [("choose_unpacking", None)]


def test_trailers_set_cookies_if_the_response_is_trailers_only(world: FrontSessionWorld) -> None:
    end = StreamEnd(Status(StatusCode.NOT_FOUND, "no"), SET)
    world.call.observer.on_end(end)
    assert world.observer.calls == [("end", end, "10.0.0.1:80")]


def test_trailers_after_a_head_set_no_cookies(world: FrontSessionWorld) -> None:
    world.call.observer.on_head(())
    world.call.observer.on_end(StreamEnd(OK, SET))
    assert world.session.backend is None
    assert world.session.cluster is None


def test_a_cookie_without_a_cluster_has_none(world: FrontSessionWorld) -> None:
    value = b64encode(b"10.0.0.1:80;").decode()
    world.call.observer.on_head((("set-cookie", SessionSetCookie(f"s={value}")),))
    assert world.session.backend == "10.0.0.1:80"
    assert world.session.cluster is None


def test_cookie_of_a_backend_is_no_backend_of_the_session(world: FrontSessionWorld) -> None:
    world.call.observer.on_head((("set-cookie", f"s={ENDPOINT}"),))
    assert (world.session.backend, world.session.cluster) == (None, None)


def test_cookies_of_backends_are_dropped_when_an_rpc_with_them_is_rejected(
    world: FrontSessionWorld,
) -> None:
    cookies = world.session.cookies
    world.call.observer.on_head((*SET, ("set-cookie", "big=1")))
    header, sent = cookies.choose("/a/b", lambda: 0.0)
    assert [str(value) for _, value in header] == [f"s={ENDPOINT}", "big=1"]
    cookies.observe(world.call, sent, VirtualClock())
    world.call.observer.on_end(StreamEnd(Status(StatusCode.RESOURCE_EXHAUSTED, "too large")))
    header, sent = cookies.choose("/a/b", lambda: 0.0)
    assert header == (("cookie", f"s={ENDPOINT}"),)
