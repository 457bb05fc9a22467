"""Virtual host of an authority: the one with the best matching domain.

Specs: A28-01. An exact domain is better than a suffix (`*.example`), that is better than a prefix
(`example.*`), that is better than `*`; in one class the longest pattern wins, then the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.xds.resources import VirtualHost

# Classes of patterns, the best one last, and their names.
_UNIVERSAL, _PREFIX, _SUFFIX, _EXACT = range(4)
PATTERN_CLASSES: Final = ("universal", "prefix", "suffix", "exact")

_NO_MATCH: Final = (-1, 0)


def find_virtual_host(hosts: Sequence[VirtualHost], authority: str) -> VirtualHost | None:
    """The best match for this authority, or None. Not case-sensitive."""
    authority = authority.lower()
    best, best_rank = None, _NO_MATCH
    for host in hosts:
        for domain in host.domains:
            rank = _rank(domain.lower(), authority)
            if rank > best_rank:
                best, best_rank = host, rank
    return best


def best_domain(host: VirtualHost, authority: str) -> tuple[str, str] | None:
    """The host's best matching domain, and its class; None if none matches."""
    authority = authority.lower()
    ranked = [(_rank(domain.lower(), authority), domain) for domain in host.domains]
    rank, domain = max(ranked, key=lambda each: each[0], default=(_NO_MATCH, ""))
    return None if rank == _NO_MATCH else (domain, PATTERN_CLASSES[rank[0]])


def _rank(domain: str, authority: str) -> tuple[int, int]:
    """The class and length of a pattern that matches; greater is better."""
    if domain == authority:
        return (_EXACT, len(domain))
    if domain == "*":
        return (_UNIVERSAL, 1)
    # The star matches at least one character.
    if len(domain) <= len(authority):
        if domain.startswith("*") and authority.endswith(domain[1:]):
            return (_SUFFIX, len(domain))
        if domain.endswith("*") and authority.startswith(domain[:-1]):
            return (_PREFIX, len(domain))
    return _NO_MATCH
