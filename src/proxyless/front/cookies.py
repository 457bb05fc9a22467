"""Cookie jar of a session.

Specs: A55, A60 (the cookie of an xDS session); RFC 6265 for the rest: Path and Max-Age are used,
other attributes are ignored. There is no domain, because a session belongs to one channel.

The cookies are an immutable tuple that the loop's thread replaces as a whole, so any thread may
read them.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from proxyless.base import parse_address
from proxyless.base.frozen import frozen
from proxyless.xds.filters.session_filter import (
    NO_SESSION_ENDPOINT,
    SessionEndpoint,
    matches_path,
    parse_cookie_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Metadata

# Cookies beyond these limits are ignored.
COOKIES_MAX: Final = 32
COOKIE_BYTES_MAX: Final = 4096
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

    @property
    def key(self) -> tuple[str, str]:
        """A new cookie replaces one with the same key."""
        return self.name, self.path

    @property
    def endpoint(self) -> SessionEndpoint:
        """The backend of a cookie of an xDS session."""
        found = parse_cookie_value(self.value.strip('"'))
        return found if found.addresses and _is_address(found.addresses[0]) else NO_SESSION_ENDPOINT


def parse_set_cookie(text: str, now_s: float) -> Cookie | None:
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
    return Cookie(name, value, path, expires_s)


class CookieJar:
    """The cookies of a session, the newest last."""

    __slots__ = ("_cookies",)

    def __init__(self) -> None:
        self._cookies: tuple[Cookie, ...] = ()

    def choose(self, path: str, now_s: Callable[[], float]) -> tuple[Cookie, ...]:
        """The cookies for an RPC of this path. Calls `now_s` only if a cookie expires."""
        found = [each for each in self._unexpired(now_s) if matches_path(each.path, path)]
        # "Cookies with longer paths are listed before cookies with shorter paths" - RFC 6265
        return tuple(sorted(found, key=lambda each: -len(each.path)))

    def on_response(self, metadata: Metadata, sent: tuple[Cookie, ...], now_s: float) -> None:
        """Take the cookies that a response sets; `sent` are the cookies of its request."""
        for key, value in metadata:
            if key == "set-cookie" and isinstance(value, str):
                cookie = parse_set_cookie(value, now_s)
                if cookie is not None:
                    self._take(cookie, sent, now_s)

    def endpoint(self, now_s: Callable[[], float]) -> SessionEndpoint:
        """The backend of the session: that of the newest cookie that names one."""
        found = (each.endpoint for each in reversed(self._unexpired(now_s)))
        return next(
            (each for each in found if each is not NO_SESSION_ENDPOINT), NO_SESSION_ENDPOINT
        )

    def _take(self, cookie: Cookie, sent: tuple[Cookie, ...], now_s: float) -> None:
        unexpired = self._unexpired(lambda: now_s)
        current = _find(unexpired, cookie.key)
        # Of concurrent RPCs the first response decides: otherwise each response would move the
        # session to another backend.
        if current is not None and current is not _find(sent, cookie.key):
            return
        others = tuple(each for each in unexpired if each is not current)
        if cookie.expires_s > now_s and len(others) < COOKIES_MAX:
            others += (cookie,)
        self._cookies = others

    def _unexpired(self, now_s: Callable[[], float]) -> tuple[Cookie, ...]:
        cookies = self._cookies
        if all(each.expires_s == math.inf for each in cookies):
            return cookies
        now = now_s()
        return tuple(each for each in cookies if each.expires_s > now)


def format_cookies(cookies: Iterable[Cookie]) -> Metadata:
    """The cookie header; empty without cookies."""
    text = "; ".join(f"{each.name}={each.value}" for each in cookies)
    return (("cookie", text),) if text else ()


def _find(cookies: Iterable[Cookie], key: tuple[str, str]) -> Cookie | None:
    return next((each for each in cookies if each.key == key), None)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
