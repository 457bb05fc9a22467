"""Unit tests of proxyless.resolver.target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.resolver.target import (
    Target,
    encode_authority,
    encode_host_port,
    is_scheme,
    naming_target,
    parse_host_port,
    parse_target,
)

SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "xds")


@pytest.mark.parametrize(
    ("text", "scheme", "authority", "path"),
    [
        ("dns:///host:80", "dns", "", "/host:80"),
        ("dns:host:80", "dns", "", "host:80"),
        ("dns:/host:80", "dns", "", "/host:80"),
        ("dns://8.8.8.8:53/host:80", "dns", "8.8.8.8:53", "/host:80"),
        ("dns:////host", "dns", "", "//host"),
        ("DNS:///Host", "dns", "", "/Host"),
        ("ipv4:1.2.3.4:80,5.6.7.8:90", "ipv4", "", "1.2.3.4:80,5.6.7.8:90"),
        ("ipv6:[::1]:80", "ipv6", "", "[::1]:80"),
        ("ipv6:%5B::1%5D:80", "ipv6", "", "[::1]:80"),
        ("unix:/path", "unix", "", "/path"),
        ("unix:///path", "unix", "", "/path"),
        ("unix:relative/path", "unix", "", "relative/path"),
        ("unix:a%20b", "unix", "", "a b"),
        ("unix-abstract:name", "unix-abstract", "", "name"),
        ("xds:///name", "xds", "", "/name"),
        ("xds://authority/name", "xds", "authority", "/name"),
        ("xds:///a/b/c", "xds", "", "/a/b/c"),
        ("dns:///host?query#fragment", "dns", "", "/host"),
        ("dns:///host#fragment?no-query", "dns", "", "/host"),
        ("dns:///host\n?a\nb", "dns", "", "/host\n"),
    ],
)
def test_target_with_a_known_scheme_is_parsed(
    text: str, scheme: str, authority: str, path: str
) -> None:
    assert parse_target(text, SCHEMES) == Target(scheme, authority, path)


@pytest.mark.parametrize(
    "text",
    ["host", "host:80", "host.example.com:80", "1.2.3.4:80", "[::1]:80", "::1", "dns", "foo:443"],
)
def test_text_without_a_known_scheme_is_a_name_of_the_default_scheme(text: str) -> None:
    assert parse_target(text, SCHEMES) == Target("dns", "", f"/{text}")
    assert parse_target(text, SCHEMES, "xds") == Target("xds", "", f"/{text}")


def test_a_name_of_the_default_scheme_is_percent_decoded_and_cut_like_any_other() -> None:
    assert parse_target("localhost%3A80?x", SCHEMES) == Target("dns", "", "/localhost:80")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "http://host:80",
            "has the unknown scheme 'http': wanted one of dns, ipv4, ipv6, unix, xds",
        ),
        ("Htps:///h", "has the unknown scheme 'Htps': wanted one of dns, ipv4, ipv6, unix, xds"),
        ("dns:", "has no name to resolve: wanted dns:///name"),
        ("dns:///", "has no name to resolve: wanted dns:///name"),
        ("dns:///?q", "has no name to resolve: wanted dns:///name"),
        ("?q", "has no name to resolve: wanted dns:///name"),
        ("unix:", "has no name to resolve: wanted unix:///name"),
        ("xds:///", "has no name to resolve: wanted xds:///name"),
        ("dns://host:80", "has no name to resolve: wanted dns:///host:80"),
        ("xds://name/", "has no name to resolve: wanted xds:///name"),
        ("dns:///%ff", "is not valid: wanted UTF-8 percent-encoded"),
    ],
)
def test_error_of_an_invalid_target_names_what_is_wanted(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared as a whole.
        parse_target(text, ["xds", "dns", "ipv4", "ipv6", "unix"])
    assert str(caught.value) == f"target {text!r} {expected}"


def test_an_empty_target_is_rejected() -> None:
    with pytest.raises(ValueError, match="target is empty: wanted scheme:///name or host:port"):
        parse_target("", SCHEMES)


@pytest.mark.parametrize(
    ("target", "name", "text"),
    [
        (Target("dns", "", "/host:80"), "host:80", "dns:///host:80"),
        (Target("dns", "", "host:80"), "host:80", "dns:host:80"),
        (Target("dns", "8.8.8.8", "/host"), "host", "dns://8.8.8.8/host"),
        (Target("unix", "", "/run/a b"), "run/a b", "unix:///run/a%20b"),
        (Target("xds", "", "//x?"), "/x?", "xds:////x%3F"),
    ],
)
def test_name_and_canonical_text_follow_from_the_parts(
    target: Target, name: str, text: str
) -> None:
    assert (target.name, str(target)) == (name, text)


@given(
    scheme=st.sampled_from(SCHEMES),
    authority=st.text(max_size=8),
    path=st.text(min_size=1, max_size=12),
)
def test_the_canonical_text_parses_to_the_same_target(
    scheme: str, authority: str, path: str
) -> None:
    # A path follows an authority only if it begins with a slash.
    target = Target(scheme, authority, f"/{path}" if authority or path == "/" else path)
    assert parse_target(str(target), SCHEMES) == target


@given(st.text())
def test_any_text_gives_a_target_or_a_value_error(text: str) -> None:
    try:
        target = parse_target(text, SCHEMES)
    except ValueError as error:
        assert "wanted" in str(error)  # noqa: PT017 - either outcome is right.
    else:
        assert target.scheme in SCHEMES


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [("dns", True), ("a+b-c.9", True), ("", False), ("9a", False), ("Dns", False), ("a:", False)],
)
def test_a_scheme_is_lower_case_letters_digits_and_three_signs(text: str, is_valid: bool) -> None:
    assert is_scheme(text) is is_valid


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("host", "host", 443),
        ("host:", "host", 443),
        ("host:80", "host", 80),
        ("host:0", "host", 0),
        ("host:65535", "host", 65535),
        ("host:http", "host", 80),
        ("host:https", "host", 443),
        ("host:000080", "host", 80),
        ("host: +80\r\n", "host", 80),
        ("1.2.3.4:80", "1.2.3.4", 80),
        ("[::1]:80", "::1", 80),
        ("[::1]:", "::1", 443),
        ("[::1]", "::1", 443),
        ("::1", "::1", 443),
        ("fe80::1%eth0", "fe80::1%eth0", 443),
        ("bücher.example:80", "bücher.example", 80),
        ("a_b.c:80", "a_b.c", 80),
    ],
)
def test_host_and_port_are_parsed(text: str, host: str, port: int) -> None:
    assert parse_host_port(text) == (host, port)


def test_default_port_can_be_set() -> None:
    assert parse_host_port("host", 80) == ("host", 80)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has host '': wanted host, host:port or [ipv6]:port"),
        (":80", "has host '': wanted host, host:port or [ipv6]:port"),
        ("/host:80", "has host '/host': wanted host, host:port or [ipv6]:port"),
        ("a b:80", "has host 'a b': wanted host, host:port or [ipv6]:port"),
        ("user@host:80", "has host 'user@host': wanted host, host:port or [ipv6]:port"),
        ("a\0b:80", "has host 'a\\x00b': wanted host, host:port or [ipv6]:port"),
        ("host:65536", "has port '65536': wanted 0 to 65535"),
        ("host:-1", "has port '-1': wanted 0 to 65535"),
        ("host:80/", "has port '80/': wanted 0 to 65535"),
        ("host:smtp", "has port 'smtp': wanted 0 to 65535"),
        ("host:80 80", "has port '80 80': wanted 0 to 65535"),
        ("host:٣", "has port '٣': wanted 0 to 65535"),
        ("foo:host:80", "has host 'foo:host:80': wanted host:port or a literal IPv6 address"),
        ("[::1", "is not valid: wanted [ipv6] or [ipv6]:port"),
        ("[::1]80", "is not valid: wanted [ipv6] or [ipv6]:port"),
        ("[host]:80", "is not valid: wanted [ipv6] or [ipv6]:port"),
        ("[1:2]:80", "has host '1:2': wanted host:port or a literal IPv6 address"),
    ],
)
def test_invalid_host_or_port_is_named(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared as a whole.
        parse_host_port(text)
    assert str(caught.value) == f"name {text!r} {expected}"


@given(st.text())
def test_any_text_is_a_host_and_a_port_or_a_value_error(text: str) -> None:
    try:
        host, port = parse_host_port(text)
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017 - either outcome is right.
    else:
        assert host
        assert 0 <= port <= 65535


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("host", "host"),
        ("host:80", "host:80"),
        ("host:", "host:"),
        ("[::1]:80", "[::1]:80"),
        # grpcio sends it unchanged, which is ambiguous.
        ("::1", "[::1]"),
        ("bücher:80", "b%C3%BCcher:80"),
    ],
)
def test_authority_has_host_and_port_of_the_target(text: str, authority: str) -> None:
    assert encode_host_port(text) == authority


def test_authority_has_only_characters_of_rfc_3986() -> None:
    assert encode_authority("a/b c%d,e") == "a%2Fb%20c%25d,e"


def test_error_is_prefixed_with_the_target() -> None:
    with (
        pytest.raises(ValueError, match=r"^target 'dns:///x': port is odd$"),
        naming_target(Target("dns", "", "/x")),
    ):
        raise ValueError("port is odd")
