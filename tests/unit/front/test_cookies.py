"""Unit tests of proxyless.front.cookies."""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import Metadata, validate_metadata
from proxyless.front.cookies import (
    COOKIE_BYTES_MAX,
    COOKIES_MAX,
    JAR_BYTES_MAX,
    SENT_BYTES_MAX,
    Cookie,
    CookieJar,
    format_cookies,
    parse_set_cookie,
)
from proxyless.xds.filters.session_filter import (
    NO_SESSION_ENDPOINT,
    SessionEndpoint,
    SessionSetCookie,
    read_session_endpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "/pkg.Service/Method"


def sets(*texts: str) -> Metadata:
    return tuple(("set-cookie", text) for text in texts)


def of_filter(*texts: str) -> list[str]:
    return [SessionSetCookie(text) for text in texts]


def encode_endpoint(text: str) -> str:
    return b64encode(text.encode()).decode()


class Jar:
    """A cookie jar and a clock."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self.now_s = 1000.0

    def choose(self, path: str = PATH) -> tuple[Cookie, ...]:
        return self.jar.choose(path, lambda: self.now_s)

    def sent(self, path: str = PATH) -> str | None:
        """The cookie header of an RPC that starts now."""
        headers = format_cookies(self.choose(path))
        return "; ".join(str(value) for _, value in headers) if headers else None

    def answer(self, *texts: str, sent: tuple[Cookie, ...] | None = None) -> None:
        """Receive a response; `sent`: the cookies of its request (default: the current ones)."""
        metadata = sets(*texts)
        self.jar.on_response(metadata, self.choose() if sent is None else sent, self.now_s)

    @property
    def endpoint(self) -> SessionEndpoint:
        return self.jar.endpoint(lambda: self.now_s)


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
def test_set_cookie_is_parsed(text: str, cookie: Cookie | None) -> None:
    assert parse_set_cookie(text, 1000.0) == cookie


@given(st.text(max_size=60))
def test_every_parsed_cookie_is_valid_metadata(text: str) -> None:
    cookie = parse_set_cookie(text, 0.0)
    if cookie is not None:
        validate_metadata(format_cookies([cookie]))


def test_an_empty_jar_sends_nothing(jar: Jar) -> None:
    assert jar.sent() is None
    assert jar.endpoint is NO_SESSION_ENDPOINT


def test_a_cookie_is_kept_and_replaced(jar: Jar) -> None:
    jar.answer("a=1", "b=2")
    assert jar.sent() == "a=1; b=2"
    jar.answer("a=3")
    assert jar.sent() == "b=2; a=3"
    jar.answer("b=2; Max-Age=0")
    assert jar.sent() == "a=3"


def test_cookies_are_chosen_by_path_and_the_longest_path_is_first(jar: Jar) -> None:
    jar.answer("a=all", "a=service; Path=/pkg.Service", "a=other; Path=/pkg.Other")
    assert jar.sent() == "a=service; a=all"
    assert jar.sent("/pkg.Other/Method") == "a=other; a=all"
    assert jar.sent("/pkg.Services/Method") == "a=all"


def test_a_cookie_expires_after_its_max_age(jar: Jar) -> None:
    jar.answer("a=1; Max-Age=10", "b=2")
    jar.now_s += 9.9
    assert jar.sent() == "a=1; b=2"
    jar.now_s += 0.1
    assert jar.sent() == "b=2"


def test_the_time_is_read_only_if_a_cookie_expires(jar: Jar) -> None:
    jar.answer("a=1")

    def refuse() -> float:
        raise AssertionError("the time is not needed")

    assert len(jar.jar.choose(PATH, refuse)) == 1


def test_the_first_response_of_concurrent_rpcs_decides(jar: Jar) -> None:
    nothing = jar.choose()
    jar.answer("a=1", sent=nothing)
    jar.answer("a=2", sent=nothing)
    assert jar.sent() == "a=1"
    both = jar.choose()
    jar.answer("a=3", sent=both)
    jar.answer("a=4", sent=both)
    jar.answer("a=1; Max-Age=0", sent=both)
    assert jar.sent() == "a=3"


def test_a_late_response_is_used_when_the_cookie_has_expired(jar: Jar) -> None:
    nothing = jar.choose()
    jar.answer("a=1; Max-Age=5", sent=nothing)
    jar.now_s += 5
    jar.answer("a=2", sent=nothing)
    assert jar.sent() == "a=2"


@pytest.mark.parametrize("kind", [str, SessionSetCookie])
def test_oldest_cookies_are_dropped_when_there_are_too_many(
    jar: Jar, kind: Callable[[str], str]
) -> None:
    jar.answer(*(kind(f"a{number}=1") for number in range(COOKIES_MAX + 9)))
    assert [each.name for each in jar.choose()] == [f"a{9 + each}" for each in range(COOKIES_MAX)]
    # Existing cookies can still be replaced and deleted.
    jar.answer(kind("a9=2"), kind("a10=1; Max-Age=0"), kind("new=1"))
    found = {cookie.name: cookie.value for cookie in jar.choose()}
    assert (found["a9"], found["new"], len(found)) == ("2", "1", COOKIES_MAX)


def test_bytes_that_are_kept_and_sent_are_bounded(jar: Jar) -> None:
    for number in range(100):
        jar.answer(*(f"{name}{number}={'x' * 3_900}" for name in "ab"))
        headers = format_cookies(jar.choose())
        assert sum(len(str(value)) for _, value in headers) <= SENT_BYTES_MAX
        # The newest one is sent.
        assert [each.name for each in jar.choose()] == [f"b{number}"]
    kept = jar.jar.choose(PATH, lambda: 0.0, [])
    assert len(kept) == 1
    assert sum(each.size_bytes for each in jar.jar._of_backends) <= JAR_BYTES_MAX


def test_cookies_of_backends_yield_to_the_metadata_of_the_rpc(jar: Jar) -> None:
    jar.answer(*of_filter("s=1"), f"big={'x' * 3_000}", "small=1")

    def names(*metadata: object) -> list[str]:
        return [each.name for each in jar.jar.choose(PATH, lambda: 0.0, metadata)]

    assert names() == ["s", "big", "small"]
    assert names(("x-blob-bin", b"y" * 4_000)) == ["s", "small"]
    assert names(("x-blob-bin", b"y" * 6_200)) == ["s"]
    # Metadata of a wrong type is rejected elsewhere.
    assert names(None, 7, ("key", None), ("a", "b", "c")) == ["s", "big", "small"]


def test_cookies_of_backends_are_apart_from_those_of_the_filter(jar: Jar) -> None:
    home, elsewhere = encode_endpoint("10.0.0.1:80;web"), encode_endpoint("10.0.0.9:80;other")
    jar.answer(*of_filter(f"s={home}"), f"s={elsewhere}", f"s={elsewhere}; Path={PATH}")
    assert jar.endpoint.cluster == "web"
    assert read_session_endpoint(format_cookies(jar.choose()), "s").cluster == "web"
    jar.answer(f"s={home}; Max-Age=0")
    assert jar.endpoint.cluster == "web"
    # Cookies of another filter that a backend sets do not count either.
    jar.answer(f"t={elsewhere}")
    assert read_session_endpoint(format_cookies(jar.choose()), "t") is NO_SESSION_ENDPOINT
    jar.answer(*of_filter(f"s={home}; Max-Age=0"))
    assert jar.endpoint is NO_SESSION_ENDPOINT


def test_other_metadata_is_ignored(jar: Jar) -> None:
    jar.jar.on_response((("cookie", "a=1"), ("set-cookie", b"a=1"), ("x", "a=1")), (), 0.0)
    assert jar.sent() is None


def test_the_newest_cookie_that_names_a_backend_is_the_endpoint(jar: Jar) -> None:
    jar.answer(*of_filter(f"s={encode_endpoint('10.0.0.1:80,10.0.0.2:80;web')}"))
    no_address, empty = encode_endpoint("no address;web"), encode_endpoint(";web")
    jar.answer(*of_filter("t=opaque", f"u={no_address}", "v=", f"w={empty}"))
    assert jar.endpoint == SessionEndpoint(("10.0.0.1:80", "10.0.0.2:80"), "web")
    jar.answer(*of_filter(f't="{encode_endpoint("[::1]:80;api")}"; Max-Age=5'))
    assert jar.endpoint == SessionEndpoint(("[::1]:80",), "api")
    jar.now_s += 5
    assert jar.endpoint.cluster == "web"
