"""Virtual hosts: the best match equals that of a reference implementation."""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.config.virtual_hosts import find_virtual_host
from proxyless.xds.resources import VirtualHost


def hosts_of(domains: list[list[str]]) -> list[VirtualHost]:
    return [VirtualHost(domains=tuple(each), routes=()) for each in domains]


def reference_match(domains: list[list[str]], authority: str) -> int | None:
    """Reference: one class after the other, the longest pattern of each, then the first."""
    authority = authority.lower()
    patterns = [(d.lower(), index) for index, each in enumerate(domains) for d in each]
    exact = [index for pattern, index in patterns if pattern == authority]
    if exact:
        return exact[0]
    for is_first in (True, False):
        found = []
        for pattern, index in patterns:
            fixed = pattern[1:] if is_first else pattern[:-1]
            has_star = pattern[:1] == "*" if is_first else pattern[-1:] == "*"
            fits = authority.endswith(fixed) if is_first else authority.startswith(fixed)
            if has_star and fixed and fits and len(fixed) < len(authority):
                found.append((-len(fixed), index))
        if found:
            best = min(length for length, _ in found)
            return next(index for length, index in found if length == best)
    return next((index for pattern, index in patterns if pattern == "*"), None)


NAMES = st.text("aB.", min_size=1, max_size=4)
DOMAINS = st.one_of(NAMES, NAMES.map("*{}".format), NAMES.map("{}*".format), st.just("*"))


@given(st.lists(st.lists(DOMAINS, min_size=1, max_size=3), max_size=4), NAMES)
def test_best_match_equals_the_reference(domains: list[list[str]], authority: str) -> None:
    hosts = hosts_of(domains)
    found = find_virtual_host(hosts, authority)
    index = next((n for n, host in enumerate(hosts) if host is found), None)
    assert index == reference_match(domains, authority)


def test_star_matches_at_least_one_character() -> None:
    [host] = hosts_of([["*.a"]])
    assert find_virtual_host([host], ".a") is None
    assert find_virtual_host([host], "x.a") is host
