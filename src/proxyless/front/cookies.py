"""Cookie jar of a session.

Specs: A55, A60 (the cookie of an xDS session); RFC 6265 for the rest: Path and Max-Age are used,
other attributes are ignored. There is no domain, because a session belongs to one channel.

Cookies of the session filter and cookies of backends are kept apart: only the former decide where
RPCs go. Backends are not trusted, so the size of what is kept and sent has limits; beyond them the
oldest cookie of a backend is dropped.

The cookies are immutable tuples that the loop's thread replaces as a whole, so any thread may read
them.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from proxyless.base import parse_address
from proxyless.base.frozen import frozen
from proxyless.xds.filters.session_filter import (
    NO_SESSION_ENDPOINT,
    BackendCookies,
    SessionEndpoint,
    SessionSetCookie,
    matches_path,
    parse_cookie_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Metadata

# A larger set-cookie header is ignored.
COOKIE_BYTES_MAX: Final = 4096
# Limits of what a jar keeps of each origin.
COOKIES_MAX: Final = 32
JAR_BYTES_MAX: Final = 16 * 1024
# The size of the cookies that are sent with an RPC.
SENT_BYTES_MAX: Final = 4096
# Servers of gRPC accept 8 kB of metadata by default. Cookies of backends are sent if they fit next
# to the RPC's own metadata, with room for the path, the authority and credentials.
METADATA_BYTES_MAX: Final = 8 * 1024
METADATA_BYTES_RESERVED: Final = 2 * 1024
# "an overhead of 32 octets for each header field" - RFC 9113, 6.5.2
_FIELD_BYTES: Final = 32
# The limit of browsers; it also prevents an overflow of floats.
_AGE_MAX_S: Final = 400 * 24 * 3600
_NUMBER: Final = re.compile(r"-?[0-9]+")


@frozen
class Cookie:
    """One cookie."""

    name: str
    value: str
    # Sent with RPCs of this path; empty: with all.
    path: str = ""
    expires_s: float = math.inf
    # Whether the session filter has set it, and not a backend.
    is_of_filter: bool = False

    @property
    def size_bytes(self) -> int:
        """The size in a cookie header, with the separators."""
        return len(self.name) + len(self.value) + len("=; ")

    @property
    def key(self) -> tuple[str, str, bool]:
        """A new cookie replaces one with the same key."""
        return self.name, self.path, self.is_of_filter

    @property
    def endpoint(self) -> SessionEndpoint:
        """The backend of a cookie of an xDS session."""
        found = parse_cookie_value(self.value.strip('"'))
        return found if found.addresses and _is_address(found.addresses[0]) else NO_SESSION_ENDPOINT


def parse_set_cookie(text: str, now_s: float, *, is_of_filter: bool = False) -> Cookie | None:
    """The cookie of a set-cookie header; an expired one if the header deletes it."""
    if len(text) > COOKIE_BYTES_MAX:
        return None
    pair, *attributes = text.split(";")
    name, equals, value = pair.partition("=")
    name, value = name.strip(), value.strip()
    # A value that is not valid in metadata would make every RPC of the session fail.
    if not equals or not name or not pair.isascii() or not pair.isprintable():
        return None
    path, expires_s = "", math.inf
    for attribute in attributes:
        key, _, argument = attribute.partition("=")
        key, argument = key.strip().lower(), argument.strip()
        if key == "path":
            # "If the attribute-value is empty or if the first character … is not %x2F", the default
            # path is used (RFC 6265), which is every path here, as in the filter.
            path = argument if argument.startswith("/") else ""
        elif key == "max-age" and _NUMBER.fullmatch(argument):
            expires_s = now_s + min(int(argument), _AGE_MAX_S) if int(argument) > 0 else -math.inf
    return Cookie(name, value, path, expires_s, is_of_filter)


class CookieJar:
    """The cookies of a session, by origin, the newest last."""

    __slots__ = ("_of_backends", "_of_filter")

    def __init__(self) -> None:
        self._of_filter: tuple[Cookie, ...] = ()
        self._of_backends: tuple[Cookie, ...] = ()

    def choose(
        self, path: str, now_s: Callable[[], float], metadata: Iterable[object] = ()
    ) -> tuple[Cookie, ...]:
        """The cookies for an RPC of this path, which has this metadata of its own.

        Calls `now_s` only if a cookie expires.
        """
        found = self._of_filter
        if found:
            found = _sorted(_for_path(found, path, now_s))
        if self._of_backends:
            found += self._choose_of_backends(path, now_s, found, metadata)
        return found

    def on_response(self, metadata: Metadata, sent: tuple[Cookie, ...], now_s: float) -> None:
        """Take the cookies that a response sets; `sent` are the cookies of its request."""
        for key, value in metadata:
            if key == "set-cookie" and isinstance(value, str):
                is_of_filter = isinstance(value, SessionSetCookie)
                cookie = parse_set_cookie(value, now_s, is_of_filter=is_of_filter)
                if cookie is not None:
                    self._take(cookie, sent, now_s)

    def drop_of_backends(self) -> None:
        """Drop the cookies of backends: a server has rejected an RPC for its size."""
        self._of_backends = ()

    def endpoint(self, now_s: Callable[[], float]) -> SessionEndpoint:
        """The backend of the session: that of the newest cookie that names one."""
        found = (each.endpoint for each in reversed(_unexpired(self._of_filter, now_s)))
        return next(
            (each for each in found if each is not NO_SESSION_ENDPOINT), NO_SESSION_ENDPOINT
        )

    def _choose_of_backends(
        self,
        path: str,
        now_s: Callable[[], float],
        others: Iterable[Cookie],
        metadata: Iterable[object],
    ) -> tuple[Cookie, ...]:
        used_bytes = sum(map(_size_bytes, metadata)) + METADATA_BYTES_RESERVED
        room_bytes = min(SENT_BYTES_MAX, METADATA_BYTES_MAX - used_bytes)
        room_bytes -= sum(each.size_bytes for each in others)
        return _sorted(_newest(_for_path(self._of_backends, path, now_s), room_bytes))

    def _take(self, cookie: Cookie, sent: tuple[Cookie, ...], now_s: float) -> None:
        kept = self._of_filter if cookie.is_of_filter else self._of_backends
        unexpired = _unexpired(kept, lambda: now_s)
        current = _find(unexpired, cookie)
        # Of concurrent RPCs the first response decides: otherwise each response would move the
        # session to another backend.
        if current is not None and current is not _find(sent, cookie):
            return
        others = tuple(each for each in unexpired if each is not current)
        if cookie.expires_s > now_s:
            others = _newest((*others, cookie), JAR_BYTES_MAX)
        if cookie.is_of_filter:
            self._of_filter = others
        else:
            self._of_backends = others


def format_cookies(cookies: Iterable[Cookie]) -> Metadata:
    """The cookie headers: at most one for each origin."""
    of_filter: list[str] = []
    of_backends: list[str] = []
    for each in cookies:
        texts = of_filter if each.is_of_filter else of_backends
        texts.append(f"{each.name}={each.value}")
    headers: Metadata = (("cookie", "; ".join(of_filter)),) if of_filter else ()
    if of_backends:
        headers += (("cookie", BackendCookies("; ".join(of_backends))),)
    return headers


def _unexpired(cookies: tuple[Cookie, ...], now_s: Callable[[], float]) -> tuple[Cookie, ...]:
    if all(each.expires_s == math.inf for each in cookies):
        return cookies
    now = now_s()
    return tuple(each for each in cookies if each.expires_s > now)


def _for_path(
    cookies: tuple[Cookie, ...], path: str, now_s: Callable[[], float]
) -> tuple[Cookie, ...]:
    return tuple([each for each in _unexpired(cookies, now_s) if matches_path(each.path, path)])


def _sorted(cookies: tuple[Cookie, ...]) -> tuple[Cookie, ...]:
    if len(cookies) <= 1:
        return cookies
    # "Cookies with longer paths are listed before cookies with shorter paths" - RFC 6265
    return tuple(sorted(cookies, key=lambda each: -len(each.path)))


def _newest(cookies: tuple[Cookie, ...], bytes_max: int) -> tuple[Cookie, ...]:
    """The cookies without the first ones, as far as they exceed the limits."""
    start, size_bytes = len(cookies), 0
    while start and len(cookies) - start < COOKIES_MAX:
        size_bytes += cookies[start - 1].size_bytes
        if size_bytes > bytes_max:
            break
        start -= 1
    return cookies[start:]


def _size_bytes(pair: object) -> int:
    """The size of a pair of metadata as a header field; 0 for what is not a pair."""
    if not isinstance(pair, tuple):
        return 0
    return _FIELD_BYTES + sum(len(each) for each in pair if isinstance(each, str | bytes))


def _find(cookies: Iterable[Cookie], new: Cookie) -> Cookie | None:
    """The cookie that a new one replaces."""
    return next((each for each in cookies if each.key == new.key), None)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
