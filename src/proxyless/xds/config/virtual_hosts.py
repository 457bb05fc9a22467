"""Which virtual host answers for an authority?

Specs: A28-01. An exact domain beats a suffix (`*.example`), that beats a prefix (`example.*`), that
beats `*`; in one class the longest pattern wins, and of equals the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.xds.resources import VirtualHost

# Classes of patterns, the best one last, and what they are called.
_UNIVERSAL, _PREFIX, _SUFFIX, _EXACT = range(4)
PATTERN_CLASSES: Final = ("universal", "prefix", "suffix", "exact")

_NO_MATCH: Final = (-1, 0)


def find_virtual_host(hosts: Sequence[VirtualHost], authority: str) -> VirtualHost | None:
    """The best match for this authority, or None. Case does not matter."""
    wanted = authority.lower()
    best, best_rank = None, _NO_MATCH
    for host in hosts:
        for domain in host.domains:
            rank = _rank(domain.lower(), wanted)
            if rank > best_rank:
                best, best_rank = host, rank
    return best


def best_domain(host: VirtualHost, authority: str) -> tuple[str, str] | None:
    """The domain by which a host matches best, and its class; None if it does not match."""
    wanted = authority.lower()
    ranked = [(_rank(domain.lower(), wanted), domain) for domain in host.domains]
    rank, domain = max(ranked, key=lambda each: each[0], default=(_NO_MATCH, ""))
    return None if rank == _NO_MATCH else (domain, PATTERN_CLASSES[rank[0]])


def _rank(domain: str, authority: str) -> tuple[int, int]:
    """How well a pattern matches: the greater, the better."""
    if domain == authority:
        return (_EXACT, len(domain))
    if domain == "*":
        return (_UNIVERSAL, 1)
    # The star stands for at least one character.
    if len(domain) <= len(authority):
        if domain.startswith("*") and authority.endswith(domain[1:]):
            return (_SUFFIX, len(domain))
        if domain.endswith("*") and authority.startswith(domain[:-1]):
            return (_PREFIX, len(domain))
    return _NO_MATCH
