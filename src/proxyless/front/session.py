"""Cookies of a session: sent with its RPCs, and taken from their responses.

Specs: A55, A60. Used by the sessions of both APIs (`aio.session`, `sync.session`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.base import StatusCode
from proxyless.channel.attempt import ForwardingObserver
from proxyless.front.cookies import CookieJar, format_cookies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Metadata
    from proxyless.channel import Call, Channel
    from proxyless.channel.attempt import CallObserver
    from proxyless.front.cookies import Cookie
    from proxyless.runtime import Clock
    from proxyless.wire import StreamEnd


class SessionCookies:
    """The cookies that the RPCs of one session share. May be read by any thread."""

    __slots__ = ("jar",)

    def __init__(self) -> None:
        self.jar: Final = CookieJar()

    def choose(
        self, path: str, now_s: Callable[[], float], metadata: Iterable[object] = ()
    ) -> tuple[Metadata, tuple[Cookie, ...]]:
        """The cookie headers for an RPC with this path and metadata, and the cookies in them."""
        cookies = self.jar.choose(path, now_s, metadata)
        return format_cookies(cookies), cookies

    def observe(self, call: Call, sent: tuple[Cookie, ...], clock: Clock) -> None:
        """Take cookies from the responses of this call, which is not started yet."""
        call.observer = SessionObserver(call.observer, self.jar, sent, clock)


class SessionApi:
    """Methods that sessions of both APIs share."""

    cookies: SessionCookies

    def _now_s(self) -> float:
        """The time of the channel's clock. Called only if there is a cookie that expires."""
        raise NotImplementedError

    @property
    def backend(self) -> str | None:
        """Address of the backend of this session; None before the first response."""
        addresses = self.cookies.jar.endpoint(self._now_s).addresses
        return addresses[0] if addresses else None

    @property
    def cluster(self) -> str | None:
        """Cluster of this session's route; None before the first response."""
        return self.cookies.jar.endpoint(self._now_s).cluster or None

    def _own_metadata(self, path: str, core: Channel) -> Metadata:
        return self.cookies.choose(path, core.clock.now_s)[0]


def extend_multi_callables(mixin: type, multi_callables: Any) -> Any:
    """The classes of multi-callables with a mixin added to each."""
    classes = (type(each.__name__, (mixin, each), {}) for each in multi_callables)
    return type(multi_callables)(*classes)


class SessionObserver(ForwardingObserver):
    """Observer of a call that takes the cookies of its response, before the call's own observer."""

    __slots__ = ("_clock", "_had_head", "_jar", "_observer", "_sent")

    # Read by `channel.traced_call`.
    is_in_session: Final = True

    def __init__(
        self, observer: CallObserver, jar: CookieJar, sent: tuple[Cookie, ...], clock: Clock
    ) -> None:
        self._observer = observer
        self._jar: Final = jar
        self._sent: Final = sent
        self._clock: Final = clock
        self._had_head = False

    def on_head(self, metadata: Metadata) -> None:
        self._had_head = True
        self._jar.on_response(metadata, self._sent, self._clock.now_s())
        self._observer.on_head(metadata)

    def on_end(self, end: StreamEnd) -> None:
        # The trailers set cookies only if the response is trailers-only (A55-04).
        if not self._had_head:
            is_exhausted = end.status.code is StatusCode.RESOURCE_EXHAUSTED
            if is_exhausted and not all(each.is_of_filter for each in self._sent):
                # Perhaps the metadata is too large. Cookies of backends must not fail RPCs.
                self._jar.drop_of_backends()
            self._jar.on_response(end.trailers, self._sent, self._clock.now_s())
        self._observer.on_end(end)
