"""Which cookies does a session hold, and which of them does an RPC send?

Specs: A55, A60 (the cookie of an xDS session); RFC 6265 for the rest, as far as RPCs need it: Path
and Max-Age count, other attributes do not. There is no domain: a session is of one channel.

Pure: the time is given. The cookies are an immutable tuple that is replaced as a whole, so that
any thread may read what one thread, the loop's, changes.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from proxyless.base import parse_address
from proxyless.base.frozen import frozen
from proxyless.xds.filters.session_calls import (
    NOWHERE,
    SessionPlace,
    matches_path,
    parse_place,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.base import Metadata

# Servers decide how many and how large: what is more or larger is not kept.
COOKIES_MAX: Final = 32
COOKIE_BYTES_MAX: Final = 4096
# As browsers do it; also keeps the arithmetic within what a float holds.
_AGE_MAX_S: Final = 400 * 24 * 3600
_NUMBER: Final = re.compile(r"-?[0-9]+")


@frozen
class Cookie:
    """What one set-cookie header said."""

    name: str
    value: str
    # Of the RPCs it is for; empty is all.
    path: str = ""
    expires_s: float = math.inf

    @property
    def key(self) -> tuple[str, str]:
        """What a newer one replaces."""
        return self.name, self.path

    @property
    def place(self) -> SessionPlace:
        """The backend that it names; nowhere if it is not the cookie of an xDS session."""
        place = parse_place(self.value.strip('"'))
        return place if place.addresses and _is_address(place.addresses[0]) else NOWHERE


def parse_set_cookie(text: str, now_s: float) -> Cookie | None:
    """The cookie that this header sets; one that ended already if it is to be forgotten."""
    if len(text) > COOKIE_BYTES_MAX:
        return None
    pair, *attributes = text.split(";")
    name, equals, value = pair.partition("=")
    name, value = name.strip(), value.strip()
    # What could not be sent back would make every RPC of the session fail.
    if not equals or not name or not pair.isascii() or not pair.isprintable():
        return None
    path, expires_s = "", math.inf
    for attribute in attributes:
        key, _, said = attribute.partition("=")
        key, said = key.strip().lower(), said.strip()
        if key == "path":
            # "If the attribute-value is empty or if the first character … is not %x2F" - RFC 6265:
            # the default, which is here, as the filter has it, every path.
            path = said if said.startswith("/") else ""
        elif key == "max-age" and _NUMBER.fullmatch(said):
            expires_s = now_s + min(int(said), _AGE_MAX_S) if int(said) > 0 else -math.inf
    return Cookie(name, value, path, expires_s)


class CookieJar:
    """The cookies of a session, the newest last. Driven by its RPCs."""

    __slots__ = ("_cookies",)

    def __init__(self) -> None:
        self._cookies: tuple[Cookie, ...] = ()

    def choose(self, path: str, now_s: Callable[[], float]) -> tuple[Cookie, ...]:
        """Those that an RPC of this path sends; the time is asked for only if it matters."""
        found = [each for each in self._alive(now_s) if matches_path(each.path, path)]
        # "Cookies with longer paths are listed before cookies with shorter paths" - RFC 6265
        return tuple(sorted(found, key=lambda each: -len(each.path)))

    def on_response(self, metadata: Metadata, sent: tuple[Cookie, ...], now_s: float) -> None:
        """Take what the response to an RPC sets, which was sent with these."""
        for key, value in metadata:
            if key == "set-cookie" and isinstance(value, str):
                cookie = parse_set_cookie(value, now_s)
                if cookie is not None:
                    self._take(cookie, sent, now_s)

    def place(self, now_s: Callable[[], float]) -> SessionPlace:
        """Where the session lives, as the newest cookie that names a backend says."""
        places = (each.place for each in reversed(self._alive(now_s)))
        return next((place for place in places if place is not NOWHERE), NOWHERE)

    def _take(self, cookie: Cookie, sent: tuple[Cookie, ...], now_s: float) -> None:
        alive = self._alive(lambda: now_s)
        known = _find(alive, cookie.key)
        # Of RPCs that are under way together the first to be answered decides: otherwise each
        # would move the session that the others have just settled.
        if known is not None and known is not _find(sent, cookie.key):
            return
        others = tuple(each for each in alive if each is not known)
        if cookie.expires_s > now_s and len(others) < COOKIES_MAX:
            others += (cookie,)
        self._cookies = others

    def _alive(self, now_s: Callable[[], float]) -> tuple[Cookie, ...]:
        cookies = self._cookies
        if all(each.expires_s == math.inf for each in cookies):
            return cookies
        now = now_s()
        return tuple(each for each in cookies if each.expires_s > now)


def format_cookies(cookies: Iterable[Cookie]) -> Metadata:
    """The header that sends these; none if there are none."""
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
