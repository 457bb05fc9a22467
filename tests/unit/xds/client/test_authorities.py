"""Unit tests of authorities: names, servers in use, entries."""

from itertools import product

import pytest

from proxyless.base import Status
from proxyless.xds.client.authorities import AuthorityServers, canonicalize_name
from proxyless.xds.client.cache import Entry
from tests.worlds.xds_clients import TextType, server_config

TYPE_URL = "type.googleapis.com/test.v3.Text"
SERVERS = (server_config("a"), server_config("b"), server_config("c"))


@pytest.mark.parametrize(
    ("name", "authority", "canonical"),
    [
        ("plain", None, "plain"),
        ("", None, ""),
        ("xdstp://one/test.v3.Text/x?b=2&a=1", "one", "xdstp://one/test.v3.Text/x?a=1&b=2"),
        ("xdstp:///test.v3.Text/x", "", "xdstp:///test.v3.Text/x"),
    ],
)
def test_name_has_an_authority_and_a_canonical_form(
    name: str, authority: str | None, canonical: str
) -> None:
    assert canonicalize_name(name, TYPE_URL) == (authority, canonical)


def test_name_is_rejected_when_it_has_another_type() -> None:
    assert isinstance(canonicalize_name("xdstp://one/test.v3.Other/x", TYPE_URL), Status)


def test_fallback_needs_an_outage_a_next_server_and_a_missing_resource() -> None:
    for is_reachable, has_next, is_missing_any, only in product((False, True), repeat=4):
        authority = AuthorityServers[str](None, SERVERS[: 1 + has_next], on_reachability_only=only)
        authority.used.append("a")
        if is_missing_any:
            authority.add(Entry(TextType(), "x", None))
        needed = authority.needs_next(is_reachable=is_reachable)
        assert needed == (not is_reachable and has_next and (is_missing_any or only))


def test_servers_are_used_in_order_and_dropped_from_below() -> None:
    authority = AuthorityServers[str](None, SERVERS, on_reachability_only=False)
    for server in SERVERS:
        assert authority.next_server == server
        authority.used.append(server.uri)
    assert authority.next_server is None
    assert authority.drop_below("c") == []
    assert authority.drop_below("a") == ["b", "c"]
    assert authority.used == ["a"]


def test_fallback_needs_an_unanswered_entry() -> None:
    authority = AuthorityServers[str](None, SERVERS, on_reachability_only=False)
    authority.used.append("a")
    entry = Entry(TextType(), "x", None)
    assert not authority.needs_next(is_reachable=False)
    authority.add(entry)
    assert authority.needs_next(is_reachable=False)
    assert not authority.needs_next(is_reachable=True)
    entry.on_valid("v", b"v", "1", 0.0)
    authority.update_unanswered(entry)
    assert not authority.needs_next(is_reachable=False)
    authority.remove(entry)
    assert authority.is_empty
    assert authority.find(entry.type.type_url, "x") is None
