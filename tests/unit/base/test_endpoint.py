"""Unit tests of proxyless.base.endpoint."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base.attributes import EMPTY, Key
from proxyless.base.endpoint import Address, Endpoint, IpAddress, UnixAddress, parse_address

V4 = IpAddress("1.2.3.4", 80)
V6 = IpAddress("::1", 80)
UNIX = UnixAddress("/run/x.sock")
ABSTRACT = UnixAddress("\0x")

IP_ADDRESSES = st.builds(
    IpAddress, st.ip_addresses().map(str), st.integers(min_value=0, max_value=65535)
)
UNIX_ADDRESSES = st.builds(
    lambda prefix, name: UnixAddress(prefix + name),
    st.sampled_from(["", "\0"]),
    st.text(st.characters(exclude_characters="\0"), min_size=1),
)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (V4, "1.2.3.4:80"),
        (V6, "[::1]:80"),
        (IpAddress("::ffff:1.2.3.4", 80), "[::ffff:1.2.3.4]:80"),
        (IpAddress("fe80::1%eth0", 80), "[fe80::1%eth0]:80"),
        (UNIX, "unix:/run/x.sock"),
        (ABSTRACT, "unix-abstract:x"),
    ],
)
def test_text_is_parsed_to_the_same_address(address: Address, text: str) -> None:
    assert str(address) == text
    assert parse_address(text) == address


@given(IP_ADDRESSES | UNIX_ADDRESSES)
def test_parse_is_the_inverse_of_text(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2.3.4", ":80", "1.2.3.4:", "1.2.3.4:http", "1.2.3.4:-1", "1.2.3.4:+1"),
        *("1.2.3.4: 1", "1.2.3.4:65536", "1.2.3.4:²", "[1.2.3.4]:80", "localhost:80", "[]:80"),
        *("::1:80", "[::1]", "[::1:80", "::1]:80", "[::1]]:80"),
        *("unix:", "unix-abstract:", "unix:a\0b", "unix:\0a"),
    ],
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not valid: wanted"):
        parse_address(text)


@pytest.mark.parametrize("host", ["localhost", "", "1.2.3", "1.2.3.04", "::g", "[::1]", "1.2.3.4 "])
def test_a_host_that_is_not_a_literal_ip_is_rejected(host: str) -> None:
    text = re.escape(f"host {host!r} is not valid: wanted a literal IP address")
    with pytest.raises(ValueError, match=text):
        IpAddress(host, 80)


@pytest.mark.parametrize("zone", ["eth0\nforged", "\x1b[31m", "a\0b", "\u202e", "a b", "x" * 16])
def test_a_zone_that_is_no_name_of_an_interface_is_rejected(zone: str) -> None:
    text = re.escape(f"host {f'fe80::1%{zone}'!r} is not valid: wanted the name of an interface")
    with pytest.raises(ValueError, match=text):
        IpAddress(f"fe80::1%{zone}", 80)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_rejected(port: int) -> None:
    with pytest.raises(ValueError, match=f"port {port} is not valid: wanted 0 to 65535"):
        IpAddress("::1", port)


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "\0a\0"])
def test_a_unix_path_without_a_name_or_with_nul_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="wanted a name without NUL"):
        UnixAddress(path)


@pytest.mark.parametrize(
    ("host", "family"),
    [("1.2.3.4", "v4"), ("::1", "v6"), ("::ffff:1.2.3.4", "v4"), ("::FFFF:102:304", "v4")],
)
def test_a_mapped_address_counts_as_v4(host: str, family: str) -> None:
    assert IpAddress(host, 80).family == family


def test_two_spellings_of_one_ip_are_equal() -> None:
    assert len({V6, IpAddress("0:0::1", 80), IpAddress("::0:1", 80)}) == 1


def test_a_mapped_address_is_not_the_address_it_maps_to() -> None:
    assert IpAddress("::ffff:1.2.3.4", 80) != V4


def test_only_a_leading_nul_is_abstract() -> None:
    assert ABSTRACT.is_abstract
    assert not UNIX.is_abstract


@given(st.permutations([V4, V6, UNIX, ABSTRACT, IpAddress("1.2.3.4", 79)]))
def test_addresses_of_all_kinds_sort_together_to_one_order(addresses: list[Address]) -> None:
    assert sorted(addresses) == [IpAddress("1.2.3.4", 79), V4, V6, ABSTRACT, UNIX]


def test_an_endpoints_key_ignores_order_and_attributes() -> None:
    endpoint = Endpoint((V4, V6), EMPTY.with_(Key[int]("weight"), 3))
    assert endpoint.key == Endpoint((V6, V4)).key
    assert endpoint.key != Endpoint((V4,)).key
    assert endpoint != Endpoint((V6, V4))


def test_an_endpoint_without_address_is_rejected() -> None:
    with pytest.raises(ValueError, match="endpoint has no address, wanted at least one"):
        Endpoint(())


def test_text_of_an_endpoint_lists_its_addresses() -> None:
    assert str(Endpoint((V4, UNIX))) == "1.2.3.4:80,unix:/run/x.sock"
