"""Explanation of an RPC: its virtual host, routes, timeout, retries, filters and clusters.

Specs: A28 (virtual hosts, routes), A31 with D20 (timeouts), A39 (filters), A44 (retries).

The decisions are repeated by the functions that RPCs use (`xds.view`). For random decisions, every
outcome is shown with its share.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base import quote
from proxyless.base.explanation import Explanation
from proxyless.base.frozen import frozen
from proxyless.base.texts import count
from proxyless.observe.explain_clusters import explain_cluster
from proxyless.observe.explain_filters import explain_filter, find_aborts
from proxyless.observe.explain_lb import count_more, explain_pick, find_barrier, name_problems
from proxyless.observe.explain_sessions import explain_session, find_leaf, override_pick, stays
from proxyless.xds.error_texts import name_route_config
from proxyless.xds.resources import (
    ClusterChoice,
    PathMatcher,
    PluginChoice,
    RouteAction,
    WeightedChoice,
    WeightedCluster,
)
from proxyless.xds.resources.matcher import PresentMatcher, RangeMatcher, StringMatcher
from proxyless.xds.resources.matching import header_value
from proxyless.xds.view import DEFAULT_TIMEOUT_S, RoutingView, best_domain, cluster_key, plugin_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxyless.base import Metadata
    from proxyless.lb import LbNode
    from proxyless.xds.resources import HeaderMatcher, Route
    from proxyless.xds.view import TableRoute, XdsConfig

FindLb: TypeAlias = "Callable[[str], LbNode | None]"

_MILLION: Final = 1_000_000
# More are counted, not shown.
HOSTS_SHOWN_MAX: Final = 20
ROUTES_SHOWN_MAX: Final = 100
# Values of headers with such a word in their name are not shown: explanations may be logged.
_SECRET_WORDS: Final = ("authorization", "cookie", "token", "secret", "password", "api-key")


@frozen
class Rpc:
    """The RPC to explain."""

    path: str
    # Keys in lower case.
    metadata: Metadata = ()
    # Selects the virtual host.
    authority: str = ""


@frozen
class Situation:
    """The RPC, and the config and policies that it uses."""

    routing: RoutingView
    rpc: Rpc
    # Returns the policy of a channel for the key of a cluster or plugin; None without a channel.
    find_lb: FindLb | None = None


def explain(
    config: XdsConfig,
    rpc: Rpc,
    default_timeout_s: float = DEFAULT_TIMEOUT_S,
    find_lb: FindLb | None = None,
) -> Explanation:
    """Explain an RPC, with the policies of a channel if `find_lb` is given.

    The first line is the verdict.
    """
    routing = RoutingView(config, default_timeout_s)
    situation = Situation(routing, rpc, find_lb)
    listed, reached = _explain_routes(routing.routes, rpc)
    destinations = [_explain_route(situation, entry) for entry in reached]
    if not destinations:
        problem = routing.describe_no_route(rpc.path)
    else:
        problem = next((each.problem for each in destinations if each.problem), "")
    is_lost = all(each.facts["is_lost"] for each in destinations)
    parts = (_explain_host(config, rpc.authority), listed, *destinations)
    return Explanation("rpc", _verdict(rpc, destinations, problem, is_lost), {}, parts, problem)


def _verdict(rpc: Rpc, destinations: list[Explanation], problem: str, is_lost: bool) -> str:
    if is_lost:
        return f"{rpc.path} fails: {problem}"
    where = " or ".join(str(each.facts["destination"]) for each in destinations)
    waits = next((str(each.facts["waits"]) for each in destinations if each.facts["waits"]), "")
    if all(each.facts["is_stuck"] for each in destinations if not each.facts["is_lost"]):
        text = f"{rpc.path} waits: {waits}"
    else:
        text = f"{rpc.path} goes to {where}"
        text += f"; some RPCs wait: {waits}" if waits else ""
    problem = problem or next(
        (str(drop) for each in destinations if (drop := each.facts["drops"])), ""
    )
    return f"{text}; some RPCs fail: {problem}" if problem else text


def _explain_host(config: XdsConfig, authority: str) -> Explanation:
    chosen = config.virtual_host
    others = [host for host in config.route_config.virtual_hosts if host is not chosen]
    parts = [
        _explain_candidate(name_of(host.name, host.domains), best_domain(host, authority))
        for host in others[:HOSTS_SHOWN_MAX]
    ]
    parts += count_more(len(others) - len(parts))
    best = best_domain(chosen, authority)
    match = f": {best[1]} match of {quote(best[0])}" if best is not None else ""
    name = name_of(chosen.name, chosen.domains)
    text = f"virtual host {name} of {name_route_config(config.route_config.name)}{match}"
    facts = {"name": chosen.name, "domain": best[0] if best is not None else ""}
    return Explanation("virtual_host", text, facts, tuple(parts))


def _explain_candidate(name: str, best: tuple[str, str] | None) -> Explanation:
    if best is None:
        return Explanation("other_host", f"not {name}: no domain matches")
    text = f"not {name}: {best[1]} match of {quote(best[0])} is not better"
    return Explanation("other_host", text)


def name_of(name: str, domains: tuple[str, ...]) -> str:
    """The name of a virtual host, or its domains if it has none."""
    return quote(name) if name else f"of {', '.join(domains[:3])}"


@frozen
class _RouteTest:
    """Result of matching the RPC against one route."""

    entry: TableRoute
    verdict: str
    text: str

    @property
    def rank(self) -> int:
        """Order in which routes are shown if there are too many: near misses before others."""
        if self.verdict == "no_match":
            return 1 if self.text.startswith("no match: header") else 2
        return 3 if self.verdict == "unreached" else 0

    def explain(self) -> Explanation:
        facts = {"index": self.entry.index, "verdict": self.verdict}
        return Explanation("route_test", f"{_route_name(self.entry)}: {self.text}", facts)


def _explain_routes(routes: Sequence[TableRoute], rpc: Rpc) -> tuple[Explanation, list[TableRoute]]:
    """The result of each route, in order, and the routes that may take the RPC."""
    tests: list[_RouteTest] = []
    reached: list[TableRoute] = []
    is_taken = False
    for entry in routes:
        if is_taken:
            tests.append(_RouteTest(entry, "unreached", "not reached"))
        elif (matcher := entry.find_mismatch(rpc.path, rpc.metadata)) is not None:
            text = f"no match: {_describe_mismatch(matcher, rpc)}"
            tests.append(_RouteTest(entry, "no_match", text))
        else:
            reached.append(entry)
            is_taken = entry.per_million >= _MILLION
            tests.append(_take(entry))
    shown = sorted(tests, key=lambda each: each.rank)[:ROUTES_SHOWN_MAX]
    shown.sort(key=lambda each: each.entry.index)
    parts = (*(each.explain() for each in shown), *count_more(len(tests) - len(shown)))
    text = f"{count(len(tests), 'route')}, in order"
    return Explanation("routes", text, {}, parts), reached


def _take(entry: TableRoute) -> _RouteTest:
    if entry.per_million >= _MILLION:
        return _RouteTest(entry, "match", "takes the RPC")
    share = f"takes {entry.per_million} of a million RPCs, by chance"
    return _RouteTest(entry, "fraction", share)


def _route_name(entry: TableRoute) -> str:
    name = f" {quote(entry.route.name)}" if entry.route.name else ""
    return f"route {entry.index}{name}"


def _describe_mismatch(matcher: PathMatcher | HeaderMatcher, rpc: Rpc) -> str:
    if isinstance(matcher, PathMatcher):
        case = "" if matcher.case_sensitive else ", in any case"
        return f"path is not {_PATH_WORDS[matcher.kind]} {quote(matcher.value)}{case}"
    got = _describe_value(matcher.name, header_value(rpc.metadata, matcher.name))
    return f"header {quote(matcher.name)} {got}, wanted {_describe_matcher(matcher)}"


def _describe_value(name: str, value: str | None) -> str:
    if value is None:
        return "is absent"
    if any(word in name for word in _SECRET_WORDS):
        return "is something else (a secret, not shown)"
    return f"is {quote(value)}"


_PATH_WORDS: Final = {"path": "equal to", "prefix": "below", "regex": "described by"}


def _describe_matcher(matcher: HeaderMatcher) -> str:
    match matcher.match:
        case StringMatcher(kind, value, ignore_case):
            text = f"{kind} {quote(value)}{' in any case' if ignore_case else ''}"
        case RangeMatcher(start, end):
            text = f"from {start} to less than {end}"
        case PresentMatcher(present):
            text = "it to be there" if present else "it to be absent"
    return f"not {text}" if matcher.invert else text


def _explain_route(situation: Situation, entry: TableRoute) -> Explanation:
    routing, route, action = situation.routing, entry.route, entry.route.action
    name = _route_name(entry)
    if not isinstance(action, RouteAction):
        problem = routing.describe_not_forwarding(route, action)
        facts: dict[str, object] = {"index": entry.index, "destination": "nowhere"}
        facts |= {"is_lost": True, "is_stuck": False, "waits": "", "drops": ""}
        return Explanation("route", f"{name}: {problem}", facts, problem=problem)
    clusters = list(_explain_choice(situation, route, action))
    # One bad cluster of several makes some RPCs fail.
    problem = next((each.problem for each in clusters if each.problem), "")
    is_lost = all(each.problem for each in clusters)
    waits = next((waits for each in clusters if (waits := each.facts.get("waits"))), "")
    is_stuck = all(each.facts.get("waits") for each in clusters if not each.problem)
    destination = _describe_destination(action, clusters)
    text = f"{name}: to {destination}"
    parts = (
        _explain_timeout(action, routing),
        _explain_retry(action, routing),
        *_explain_authority(action),
        *_explain_mirrors(action),
        *clusters,
    )
    facts = {"index": entry.index, "destination": destination, "is_lost": is_lost, "waits": waits}
    facts |= {"is_stuck": is_stuck, "drops": _find_loss(clusters)}
    return Explanation("route", text, facts, parts, problem)


def _find_loss(clusters: list[Explanation]) -> str:
    """Reason for which a share of the RPCs fails; not of leaves, which may not be in use."""
    for each in clusters:
        if aborts := each.facts.get("aborts"):
            return str(aborts)
        drops = each.facts.get("drops")
        if isinstance(drops, list) and drops:
            return f"cluster {quote(str(each.facts['name']))}: {drops[0]}"
    return ""


def _explain_timeout(action: RouteAction, routing: RoutingView) -> Explanation:
    choice = routing.timeout(action)
    limit = "no time limit" if choice.timeout_s == inf else f"at most {choice.timeout_s:g} s"
    if choice.field != "default":
        owner = "" if choice.field.startswith("the listener's ") else "the route's "
        reason = f"from {owner}{choice.field}"
    elif choice.table == "final":
        reason = "because the route's max_stream_duration is empty"
    else:
        reason = "because neither the route nor the listener has a timeout"
    facts = {
        "timeout_s": None if choice.timeout_s == inf else choice.timeout_s,
        "field": choice.field,
    }
    return Explanation("timeout", f"timeout: {limit}, {reason}", facts)


def _explain_retry(action: RouteAction, routing: RoutingView) -> Explanation:
    policy = routing.retry_policy(action)
    if policy is None:
        return Explanation("retry", "retry: none", {"attempts_max": 1})
    owner = "the route" if action.retry is not None else "the virtual host"
    codes = sorted(code.name for code in policy.retryable_codes)
    text = f"retry: up to {policy.attempts_max} attempts on {', '.join(codes)}, from {owner}"
    return Explanation("retry", text, {"attempts_max": policy.attempts_max, "codes": codes})


def _explain_authority(action: RouteAction) -> Iterator[Explanation]:
    """The authority, if it is not the channel's (A81)."""
    if action.auto_host_rewrite:
        text = "authority: the hostname of the endpoint if it has one, from the route"
        yield Explanation("authority", text, {"auto_host_rewrite": True})


def _explain_mirrors(action: RouteAction) -> Iterator[Explanation]:
    for each in action.mirrors:
        percent = each.per_million / 10_000
        text = f"mirror: {percent:g} % of RPCs with one request are copied to cluster"
        facts = {"cluster": each.cluster, "percent": percent}
        yield Explanation("mirror", f"{text} {quote(each.cluster)}, answers are ignored", facts)


def _describe_destination(action: RouteAction, clusters: list[Explanation]) -> str:
    match action.choice:
        case WeightedChoice(weighted) if len(clusters) < len(weighted):
            return f"cluster {quote(str(clusters[0].facts['name']))}, where its session lives"
        case _:
            return _describe_choice(action)


def _describe_choice(action: RouteAction) -> str:
    match action.choice:
        case ClusterChoice(cluster):
            return f"cluster {quote(cluster)}"
        case WeightedChoice(clusters):
            total = sum(each.weight for each in clusters)
            named = (f"{quote(each.name)} ({100 * each.weight / total:.4g} %)" for each in clusters)
            return f"one of clusters {', '.join(named)}"
        case PluginChoice(plugin):
            return f"plugin {quote(plugin)}"


def _explain_choice(
    situation: Situation, route: Route, action: RouteAction
) -> Iterator[Explanation]:
    routing, rpc = situation.routing, situation.rpc
    match action.choice:
        case ClusterChoice(cluster):
            chosen: tuple[WeightedCluster, ...] = (WeightedCluster(cluster, 1),)
        case WeightedChoice(weighted):
            chosen = weighted
        case PluginChoice(plugin):
            text = f"plugin {quote(plugin)} chooses the cluster"
            part = Explanation("plugin", text, {"name": plugin})
            part = _add_pick(situation, part, plugin_key(plugin))
            yield _add_filters(situation, part, route)
            return
    session = routing.session(route, rpc.path, rpc.metadata)
    if session is not None:
        # "if the matched route can route to it" - A60
        chosen = tuple(each for each in chosen if each.name == session.cluster) or chosen
    total = sum(each.weight for each in chosen)
    for each in chosen:
        share = f" ({100 * each.weight / total:.4g} %)" if len(chosen) > 1 else ""
        result = routing.config.clusters.get(each.name)
        part = explain_cluster(each.name, result, share)
        key = cluster_key(each.name)
        session_part = None
        if session is not None:
            node = None if situation.find_lb is None else situation.find_lb(key)
            session_part = explain_session(session, find_leaf(result, node), node)
            part = replace(part, parts=(*part.parts, session_part))
        part = _add_pick(situation, part, key, session_part)
        yield _add_filters(situation, part, route, each)


def _add_pick(
    situation: Situation, part: Explanation, key: str, session: Explanation | None = None
) -> Explanation:
    """Add the result of a pick, if there is a channel."""
    if situation.find_lb is None:
        return _keep_session(part, session)
    node = situation.find_lb(key)
    pick = explain_pick(node)
    if session is not None and node is not None:
        pick = override_pick(pick, session, node)
    waits = (
        f"{part.kind} {quote(str(part.facts['name']))}: {reason}"
        if (reason := pick.facts.get("waits"))
        else ""
    )
    facts = {**part.facts, "waits": waits, "result": pick.facts["result"]}
    return replace(
        part, facts=facts, parts=(*part.parts, pick), problem=_find_problem(part, pick, node)
    )


def _find_problem(part: Explanation, pick: Explanation, node: LbNode | None) -> str:
    """Why RPCs of this cluster fail now; empty if they do not."""
    # Despite a problem of the config, an aggregate may use another leaf, and a session its host.
    if pick.facts["result"] == "complete" or "session" in pick.facts:
        return ""
    barrier = "" if node is None else find_barrier(node)
    if not part.problem or not barrier:
        return part.problem or _with_name(part, pick.problem)
    # The problem of the config has the details of a barrier that is in the config.
    return part.problem if part.facts.get("barrier") else name_problems(barrier, part.problem)


def _keep_session(part: Explanation, session: Explanation | None) -> Explanation:
    """Remove the problem if the session decides: its host is chosen above priorities (A75)."""
    if session is None or not stays(session) or part.facts.get("barrier"):
        return part
    return replace(part, problem="")


def _add_filters(
    situation: Situation, part: Explanation, route: Route, cluster: WeightedCluster | None = None
) -> Explanation:
    """Add the filters, which may abort RPCs before they come to the cluster."""
    filters = tuple(
        explain_filter(each, situation.rpc.metadata)
        for each in situation.routing.filters(route, cluster)
    )
    part = replace(part, parts=(*filters, *part.parts))
    abort, possible_abort = find_aborts(filters)
    facts = {**part.facts, "aborts": possible_abort}
    if not abort:
        return replace(part, facts=facts)
    problem = name_problems(abort, part.problem)
    return replace(part, facts={**facts, "waits": ""}, problem=problem)


def _with_name(part: Explanation, problem: str) -> str:
    """The problem with the name of the cluster, which some texts already have."""
    name = str(part.facts["name"])
    is_named = quote(name) in problem
    return problem if not problem or is_named else f"{part.kind} {quote(name)}: {problem}"
