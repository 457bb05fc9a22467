"""The cookie of a session: reading and writing."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, OK, Metadata
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from proxyless.xds.filters.attributes import OVERRIDE_HOST
from proxyless.xds.filters.rpc_filter import RoutedRpc
from proxyless.xds.filters.session_filter import (
    NO_SESSION_ENDPOINT,
    SessionEndpoint,
    SessionFilter,
    format_cookie_value,
    format_set_cookie,
    matches_path,
    parse_cookie_value,
    read_session_endpoint,
)
from proxyless.xds.filters.stateful_session import (
    SessionCookie,
    StatefulSessionConfig,
    StatefulSessionFilterFactory,
)

ENDPOINT = SessionEndpoint(("10.0.0.1:80", "[fd00::1]:80"), "blue")


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
def test_path_matches_by_the_rules_of_cookies(cookie_path: str, path: str, matches: bool) -> None:
    assert matches_path(cookie_path, path) is matches


def test_cookie_value_has_addresses_and_cluster() -> None:
    # "addr[,addr];cluster", without the prefix that children of xds_cluster_manager have.
    assert format_cookie_value(ENDPOINT) == encode("10.0.0.1:80,[fd00::1]:80;blue")
    assert parse_cookie_value(format_cookie_value(ENDPOINT)) == ENDPOINT


@pytest.mark.parametrize(
    ("encoded", "endpoint"),
    [
        (encode("1.2.3.4:5"), SessionEndpoint(("1.2.3.4:5",))),
        (encode("1.2.3.4:5;a;b"), SessionEndpoint(("1.2.3.4:5",), "a;b")),
        (encode(";a"), SessionEndpoint((), "a")),
        (encode("1.2.3.4:55;a").rstrip("="), SessionEndpoint(("1.2.3.4:55",), "a")),
        ("", NO_SESSION_ENDPOINT),
        ("!!!", NO_SESSION_ENDPOINT),
        ("A", NO_SESSION_ENDPOINT),
        ("/w==", NO_SESSION_ENDPOINT),
        ("é", NO_SESSION_ENDPOINT),
    ],
)
def test_cookie_value_is_parsed_only_if_it_is_base64_of_text(
    encoded: str, endpoint: SessionEndpoint
) -> None:
    assert parse_cookie_value(encoded) == endpoint


@given(st.text())
def test_parser_accepts_any_text(text: str) -> None:
    assert isinstance(parse_cookie_value(text), SessionEndpoint)
    assert isinstance(read_session_endpoint((("cookie", text),), "n"), SessionEndpoint)


@pytest.mark.parametrize(
    "metadata",
    [
        (("cookie", f"n={format_cookie_value(ENDPOINT)}"),),
        (("cookie", f"m=x; n={format_cookie_value(ENDPOINT)}; o=y"),),
        (("cookie", f"n={format_cookie_value(ENDPOINT)}; n={encode('9.9.9.9:9;red')}"),),
        (("cookie", "m=x"), ("cookie", f"n={format_cookie_value(ENDPOINT)}")),
        (("cookie", f"n; nn=z;n={format_cookie_value(ENDPOINT)}"),),
    ],
)
def test_first_cookie_of_the_name_is_used(metadata: Metadata) -> None:
    assert read_session_endpoint(metadata, "n") == ENDPOINT


def test_second_cookie_is_ignored_when_the_first_is_invalid() -> None:
    assert (
        read_session_endpoint((("cookie", f"n=!; n={format_cookie_value(ENDPOINT)}"),), "n")
        == NO_SESSION_ENDPOINT
    )


def test_other_headers_and_cookies_are_ignored() -> None:
    assert read_session_endpoint(
        (("cook", "n=YQ=="), ("cookie", "N=YQ=="), ("cookie", b"n=YQ==")), "n"
    ) == (NO_SESSION_ENDPOINT)


def test_set_cookie_has_path_and_age_when_the_config_has_them() -> None:
    value = format_cookie_value(ENDPOINT)
    assert format_set_cookie(SessionCookie("n"), ENDPOINT) == f"n={value}; HttpOnly"
    full = format_set_cookie(SessionCookie("n", "/a", 90.7), ENDPOINT)
    assert full == f"n={value}; HttpOnly; Path=/a; Max-Age=90"


def test_no_cookie_is_set_when_the_rpc_was_not_sent() -> None:
    rpc = RoutedRpc(
        "/a/b", (("cookie", f"n={format_cookie_value(ENDPOINT)}"),), (), "red", EMPTY_ATTRIBUTES
    )
    found = SessionFilter(SessionCookie("n")).on_rpc(rpc)
    assert found is not None
    assert found.on_head(()) == ()
    end = StreamEnd(OK)
    assert found.on_end(end, had_head=False) is end


def test_cookie_has_the_cluster_that_a_later_filter_chose() -> None:
    rpc = RoutedRpc("/a/b", (), ("red", "blue"), "red", EMPTY_ATTRIBUTES)
    found = SessionFilter(SessionCookie("n")).on_rpc(rpc)
    override = rpc.attributes.get(OVERRIDE_HOST)
    assert found is not None
    assert override is not None
    rpc.cluster = "blue"
    override.actual_addresses = ENDPOINT.addresses
    assert found.on_head((("k", "v"),)) == (
        ("k", "v"),
        ("set-cookie", format_set_cookie(SessionCookie("n"), ENDPOINT)),
    )


def test_override_replaces_the_config() -> None:
    factory, random = StatefulSessionFilterFactory(), seeded_random(1)
    on = StatefulSessionConfig(SessionCookie("n"))
    assert factory.create(on, None, random) is not None
    assert factory.create(on, StatefulSessionConfig(), random) is None
    assert factory.create(StatefulSessionConfig(), on, random) is not None
