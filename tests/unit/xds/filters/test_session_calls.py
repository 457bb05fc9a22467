"""What a session's cookie says, and how it is written."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, OK, Metadata
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from proxyless.xds.filters.attributes import OVERRIDE_HOST
from proxyless.xds.filters.calls import RoutedRpc
from proxyless.xds.filters.session_calls import (
    NOWHERE,
    SessionFilter,
    SessionPlace,
    format_place,
    format_set_cookie,
    matches_path,
    parse_place,
    read_place,
)
from proxyless.xds.filters.stateful_session import (
    SessionCookie,
    StatefulSessionConfig,
    StatefulSessionFilterFactory,
)

PLACE = SessionPlace(("10.0.0.1:80", "[fd00::1]:80"), "blue")


def encode(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("cookie_path", "path", "matches"),
    [
        ("", "/a/b", True),
        ("/", "/a/b", True),
        ("/a", "/a/b", True),
        ("/a/", "/a/b", True),
        ("/a/b", "/a/b", True),
        ("/a/b/", "/a/b", False),
        ("/a/b", "/a/bc", False),
        ("/x", "/a/b", False),
        ("/a/b/c", "/a/b", False),
    ],
)
def test_paths_match_as_those_of_cookies_do(cookie_path: str, path: str, matches: bool) -> None:
    assert matches_path(cookie_path, path) is matches


def test_a_place_is_addresses_and_a_cluster() -> None:
    # "addr[,addr];cluster", without the prefix that children of xds_cluster_manager have.
    assert format_place(PLACE) == encode("10.0.0.1:80,[fd00::1]:80;blue")
    assert parse_place(format_place(PLACE)) == PLACE


@pytest.mark.parametrize(
    ("encoded", "place"),
    [
        (encode("1.2.3.4:5"), SessionPlace(("1.2.3.4:5",))),
        (encode("1.2.3.4:5;a;b"), SessionPlace(("1.2.3.4:5",), "a;b")),
        (encode(";a"), SessionPlace((), "a")),
        (encode("1.2.3.4:55;a").rstrip("="), SessionPlace(("1.2.3.4:55",), "a")),
        ("", NOWHERE),
        ("!!!", NOWHERE),
        ("A", NOWHERE),
        ("/w==", NOWHERE),
        ("é", NOWHERE),
    ],
)
def test_what_is_not_base64_of_text_says_nothing(encoded: str, place: SessionPlace) -> None:
    assert parse_place(encoded) == place


@given(st.text())
def test_no_cookie_breaks_anything(text: str) -> None:
    assert isinstance(parse_place(text), SessionPlace)
    assert isinstance(read_place((("cookie", text),), "n"), SessionPlace)


@pytest.mark.parametrize(
    "metadata",
    [
        (("cookie", f"n={format_place(PLACE)}"),),
        (("cookie", f"m=x; n={format_place(PLACE)}; o=y"),),
        (("cookie", f"n={format_place(PLACE)}; n={encode('9.9.9.9:9;red')}"),),
        (("cookie", "m=x"), ("cookie", f"n={format_place(PLACE)}")),
        (("cookie", f"n; nn=z;n={format_place(PLACE)}"),),
    ],
)
def test_the_first_cookie_of_the_name_counts(metadata: Metadata) -> None:
    assert read_place(metadata, "n") == PLACE


def test_a_bad_first_cookie_hides_a_good_second_one() -> None:
    assert read_place((("cookie", f"n=!; n={format_place(PLACE)}"),), "n") == NOWHERE


def test_other_headers_and_other_names_say_nothing() -> None:
    assert read_place((("cook", "n=YQ=="), ("cookie", "N=YQ=="), ("cookie", b"n=YQ==")), "n") == (
        NOWHERE
    )


def test_set_cookie_has_path_and_age_only_if_the_config_does() -> None:
    value = format_place(PLACE)
    assert format_set_cookie(SessionCookie("n"), PLACE) == f"n={value}; HttpOnly"
    full = format_set_cookie(SessionCookie("n", "/a", 90.7), PLACE)
    assert full == f"n={value}; HttpOnly; Path=/a; Max-Age=90"


def test_an_rpc_that_went_nowhere_gets_no_cookie() -> None:
    rpc = RoutedRpc("/a/b", (("cookie", f"n={format_place(PLACE)}"),), (), "red", EMPTY_ATTRIBUTES)
    found = SessionFilter(SessionCookie("n")).on_rpc(rpc)
    assert found is not None
    assert found.on_head(()) == ()
    end = StreamEnd(OK)
    assert found.on_end(end, had_head=False) is end


def test_the_cookie_names_the_cluster_that_a_later_filter_chose() -> None:
    rpc = RoutedRpc("/a/b", (), ("red", "blue"), "red", EMPTY_ATTRIBUTES)
    found = SessionFilter(SessionCookie("n")).on_rpc(rpc)
    override = rpc.attributes.get(OVERRIDE_HOST)
    assert found is not None
    assert override is not None
    rpc.cluster = "blue"
    override.actual_addresses = PLACE.addresses
    assert found.on_head((("k", "v"),)) == (
        ("k", "v"),
        ("set-cookie", format_set_cookie(SessionCookie("n"), PLACE)),
    )


def test_an_override_stands_in_place_of_the_config() -> None:
    factory, random = StatefulSessionFilterFactory(), seeded_random(1)
    on = StatefulSessionConfig(SessionCookie("n"))
    assert factory.create(on, None, random) is not None
    assert factory.create(on, StatefulSessionConfig(), random) is None
    assert factory.create(StatefulSessionConfig(), on, random) is not None
