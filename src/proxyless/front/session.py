"""How do the RPCs of a session hear of its cookies, and where does the session live?

Specs: A55, A60. Whatever kind of channel a session is (`aio_session`, `sync_session`), its RPCs
join one of these: it gives them the cookies to send, and listens to what comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.front.cookies import CookieJar, format_cookies

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Metadata
    from proxyless.channel import Call
    from proxyless.channel.attempt import CallObserver
    from proxyless.front.cookies import Cookie
    from proxyless.runtime import Clock
    from proxyless.wire import StreamEnd


class Session:
    """What the RPCs of one session share. Driven by them; read by any thread."""

    __slots__ = ("jar",)

    def __init__(self) -> None:
        self.jar: Final = CookieJar()

    def choose(self, path: str, now_s: Callable[[], float]) -> tuple[Metadata, tuple[Cookie, ...]]:
        """What an RPC of this path sends, and the cookies that it is made of."""
        cookies = self.jar.choose(path, now_s)
        return format_cookies(cookies), cookies

    def join(self, call: Call, sent: tuple[Cookie, ...], clock: Clock) -> None:
        """Listen to this call, which is not started yet."""
        call.observer = SessionObserver(call.observer, self.jar, sent, clock)

    def backend(self, now_s: Callable[[], float]) -> str | None:
        addresses = self.jar.place(now_s).addresses
        return addresses[0] if addresses else None

    def cluster(self, now_s: Callable[[], float]) -> str | None:
        return self.jar.place(now_s).cluster or None


class SessionObserver:
    """Takes the cookies that a response sets, before the application hears of it."""

    __slots__ = ("_clock", "_had_head", "_jar", "_observer", "_sent")

    def __init__(
        self, observer: CallObserver, jar: CookieJar, sent: tuple[Cookie, ...], clock: Clock
    ) -> None:
        self._observer: Final = observer
        self._jar: Final = jar
        self._sent: Final = sent
        self._clock: Final = clock
        self._had_head = False

    def on_head(self, metadata: Metadata) -> None:
        self._had_head = True
        self._jar.on_response(metadata, self._sent, self._clock.now_s())
        self._observer.on_head(metadata)

    def on_message(self, message: bytes) -> None:
        self._observer.on_message(message)

    def on_writable(self) -> None:
        self._observer.on_writable()

    def on_end(self, end: StreamEnd) -> None:
        # Of a response with a head the trailers are the application's alone (A55-04).
        if not self._had_head:
            self._jar.on_response(end.trailers, self._sent, self._clock.now_s())
        self._observer.on_end(end)
