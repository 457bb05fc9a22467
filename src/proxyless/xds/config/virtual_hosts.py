"""Search for the virtual host of an authority, and for the clusters that its routes name.

Specs: A28-01. The virtual host with the best matching domain is used. An exact domain is better
than a suffix (`*.example`), which is better than a prefix (`example.*`), which is better than `*`;
within a class the longest pattern wins, then the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.xds.resources import ClusterChoice, RouteAction, StringMatcher, WeightedChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.xds.resources import Route, VirtualHost

# Clusters that the routes of one virtual host name.
ROUTED_MAX: Final = 4_096
# Matchers of the paths and headers of its routes; a regex counts as several.
MATCHERS_MAX: Final = 20_480
REGEX_MATCHERS: Final = 5

# Classes of patterns, the best one last, and their names.
_UNIVERSAL, _PREFIX, _SUFFIX, _EXACT = range(4)
PATTERN_CLASSES: Final = ("universal", "prefix", "suffix", "exact")

_NO_MATCH: Final = (-1, 0)


def find_virtual_host(hosts: Sequence[VirtualHost], authority: str) -> VirtualHost | None:
    """The best match for this authority, or None. Not case-sensitive."""
    ranks = _rank_patterns(authority.lower())
    best, best_rank = None, _NO_MATCH
    for host in hosts:
        # There may be half a million domains: few are handled in Python.
        if ranks.keys().isdisjoint(map(str.lower, host.domains)):
            continue
        for domain in host.domains:
            rank = ranks.get(domain.lower(), _NO_MATCH)
            if rank > best_rank:
                best, best_rank = host, rank
    return best


def best_domain(host: VirtualHost, authority: str) -> tuple[str, str] | None:
    """The host's best matching domain, and its class; None if none matches."""
    ranks = _rank_patterns(authority.lower())
    ranked = [(ranks.get(domain.lower(), _NO_MATCH), domain) for domain in host.domains]
    rank, domain = max(ranked, key=lambda each: each[0], default=(_NO_MATCH, ""))
    return None if rank == _NO_MATCH else (domain, PATTERN_CLASSES[rank[0]])


def _rank_patterns(authority: str) -> dict[str, tuple[int, int]]:
    """The patterns that match, each with its class and length; greater is better."""
    size = len(authority)
    # The star matches at least one character.
    ranks = {authority[:at] + "*": (_PREFIX, at + 1) for at in range(1, size)}
    ranks |= {"*" + authority[at:]: (_SUFFIX, size - at + 1) for at in range(1, size)}
    return ranks | {"*": (_UNIVERSAL, 1), authority: (_EXACT, size)}


def limited_clusters(host: VirtualHost) -> dict[str, None] | str:
    """`routed_clusters`, or an error text if the virtual host is beyond a limit."""
    count = len(host.routes)
    if count <= MATCHERS_MAX:
        count = sum(map(_count_matchers, host.routes))
    if count > MATCHERS_MAX:
        return f"has a virtual host with {count} matchers, wanted at most {MATCHERS_MAX}"
    clusters = routed_clusters(host)
    if (count := len(clusters)) > ROUTED_MAX:
        return f"has a virtual host that names {count} clusters, wanted at most {ROUTED_MAX}"
    return clusters


def _count_matchers(route: Route) -> int:
    count = REGEX_MATCHERS if route.path.kind == "regex" else 1
    for header in route.headers:
        is_regex = isinstance(header.match, StringMatcher) and header.match.kind == "regex"
        count += REGEX_MATCHERS if is_regex else 1
    return count


def routed_clusters(host: VirtualHost) -> dict[str, None]:
    """The clusters that a virtual host's routes name, in order (A74-09)."""
    return dict.fromkeys(name for route in host.routes for name in _clusters_of(route.action))


def _clusters_of(action: object) -> Iterator[str]:
    if not isinstance(action, RouteAction):
        return
    choice = action.choice
    if isinstance(choice, ClusterChoice):
        yield choice.cluster
    elif isinstance(choice, WeightedChoice):
        for entry in choice.clusters:
            yield entry.name
