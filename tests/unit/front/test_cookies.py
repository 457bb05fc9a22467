"""Does a session hold the right cookies, and send them where they belong?"""

from __future__ import annotations

import math
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import Metadata, validate_metadata
from proxyless.front.cookies import (
    COOKIE_BYTES_MAX,
    COOKIES_MAX,
    Cookie,
    CookieJar,
    format_cookies,
    parse_set_cookie,
)
from proxyless.xds.filters.session_calls import NOWHERE, SessionPlace

PATH = "/pkg.Service/Method"


def sets(*texts: str) -> Metadata:
    return tuple(("set-cookie", text) for text in texts)


def place(text: str) -> str:
    return b64encode(text.encode()).decode()


class Jar:
    """A jar and its time."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self.now_s = 1000.0

    def choose(self, path: str = PATH) -> tuple[Cookie, ...]:
        return self.jar.choose(path, lambda: self.now_s)

    def sent(self, path: str = PATH) -> str | None:
        """The header of an RPC that starts now."""
        header = format_cookies(self.choose(path))
        return str(header[0][1]) if header else None

    def answer(self, *texts: str, sent: tuple[Cookie, ...] | None = None) -> None:
        """The response to an RPC, which started just now unless it is said what it sent."""
        metadata = sets(*texts)
        self.jar.on_response(metadata, self.choose() if sent is None else sent, self.now_s)

    @property
    def place(self) -> SessionPlace:
        return self.jar.place(lambda: self.now_s)


@pytest.fixture
def jar() -> Jar:
    return Jar()


@pytest.mark.parametrize(
    ("text", "cookie"),
    [
        ("a=b", Cookie("a", "b")),
        ("a=b; HttpOnly", Cookie("a", "b")),
        (" a = b ;path=/x; MAX-AGE=5", Cookie("a", "b", "/x", 1005.0)),
        ("a=b=c==; Path=/x; Path=/y", Cookie("a", "b=c==", "/y")),
        ("a=", Cookie("a", "")),
        ('a="b"', Cookie("a", '"b"')),
        ("a=b; Path=; Path=x", Cookie("a", "b")),
        ("a=b; Max-Age=; Max-Age=x; Max-Age=1.5", Cookie("a", "b")),
        ("a=b; Max-Age=0", Cookie("a", "b", "", -math.inf)),
        ("a=b; Max-Age=-1", Cookie("a", "b", "", -math.inf)),
        ("a=b; Max-Age=" + "9" * 400, Cookie("a", "b", "", 1000.0 + 400 * 86400)),
        ("", None),
        ("a", None),
        ("=b", None),
        (" =b", None),
        ("a=\u00e4", None),
        ("a=\x07", None),
        ("a=" + "b" * COOKIE_BYTES_MAX, None),
    ],
)
def test_what_a_header_sets(text: str, cookie: Cookie | None) -> None:
    assert parse_set_cookie(text, 1000.0) == cookie


@given(st.text(max_size=60))
def test_whatever_a_server_sets_can_be_sent_back(text: str) -> None:
    cookie = parse_set_cookie(text, 0.0)
    if cookie is not None:
        validate_metadata(format_cookies([cookie]))


def test_an_empty_jar_sends_nothing(jar: Jar) -> None:
    assert jar.sent() is None
    assert jar.place is NOWHERE


def test_a_cookie_is_kept_and_replaced(jar: Jar) -> None:
    jar.answer("a=1", "b=2")
    assert jar.sent() == "a=1; b=2"
    jar.answer("a=3")
    assert jar.sent() == "b=2; a=3"
    jar.answer("b=2; Max-Age=0")
    assert jar.sent() == "a=3"


def test_paths_choose_and_the_longest_comes_first(jar: Jar) -> None:
    jar.answer("a=all", "a=service; Path=/pkg.Service", "a=other; Path=/pkg.Other")
    assert jar.sent() == "a=service; a=all"
    assert jar.sent("/pkg.Other/Method") == "a=other; a=all"
    assert jar.sent("/pkg.Services/Method") == "a=all"


def test_a_cookie_ends_with_its_age(jar: Jar) -> None:
    jar.answer("a=1; Max-Age=10", "b=2")
    jar.now_s += 9.9
    assert jar.sent() == "a=1; b=2"
    jar.now_s += 0.1
    assert jar.sent() == "b=2"


def test_the_time_is_asked_for_only_if_it_matters(jar: Jar) -> None:
    jar.answer("a=1")

    def refuse() -> float:
        raise AssertionError("nobody needs the time")

    assert len(jar.jar.choose(PATH, refuse)) == 1


def test_of_rpcs_under_way_together_the_first_answer_decides(jar: Jar) -> None:
    nothing = jar.choose()
    jar.answer("a=1", sent=nothing)
    jar.answer("a=2", sent=nothing)
    assert jar.sent() == "a=1"
    both = jar.choose()
    jar.answer("a=3", sent=both)
    jar.answer("a=4", sent=both)
    jar.answer("a=1; Max-Age=0", sent=both)
    assert jar.sent() == "a=3"


def test_a_late_answer_counts_when_the_cookie_has_ended(jar: Jar) -> None:
    nothing = jar.choose()
    jar.answer("a=1; Max-Age=5", sent=nothing)
    jar.now_s += 5
    jar.answer("a=2", sent=nothing)
    assert jar.sent() == "a=2"


def test_a_jar_is_not_filled_without_end(jar: Jar) -> None:
    jar.answer(*(f"a{number}=1" for number in range(COOKIES_MAX + 9)))
    assert len(jar.choose()) == COOKIES_MAX
    # Those that are there can still change, and make room for others.
    jar.answer("a0=2")
    jar.answer("a1=1; Max-Age=0", "new=1")
    found = {cookie.name: cookie.value for cookie in jar.choose()}
    assert (found["a0"], found["new"], len(found)) == ("2", "1", COOKIES_MAX)


def test_other_metadata_is_not_looked_at(jar: Jar) -> None:
    jar.jar.on_response((("cookie", "a=1"), ("set-cookie", b"a=1"), ("x", "a=1")), (), 0.0)
    assert jar.sent() is None


def test_the_newest_cookie_that_names_a_backend_says_where(jar: Jar) -> None:
    jar.answer(f"s={place('10.0.0.1:80,10.0.0.2:80;web')}")
    jar.answer("t=opaque", f"u={place('no address;web')}", "v=", f"w={place(';web')}")
    assert jar.place == SessionPlace(("10.0.0.1:80", "10.0.0.2:80"), "web")
    jar.answer(f't="{place("[::1]:80;api")}"; Max-Age=5')
    assert jar.place == SessionPlace(("[::1]:80",), "api")
    jar.now_s += 5
    assert jar.place.cluster == "web"
