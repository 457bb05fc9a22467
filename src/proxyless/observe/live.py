"""What happens to an RPC on a channel that is running, and why?

Specs: A74 (what an xDS target needs), A40 (words for the state of a resource).

The decisions are run again for the config that the channel has (`explain`), and to each cluster is
added what its policies would answer now (`explain_lb`). If there is no config, what is missing is
named, and who was asked for it. Looking changes nothing: no pick, no request, no connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.base import State, quote
from proxyless.base.explanation import Explanation
from proxyless.front.explaining import recall
from proxyless.lb.view import in_seconds
from proxyless.observe.explain import Rpc, explain
from proxyless.observe.explain_lb import explain_pick
from proxyless.xds.error_texts import name_dns, name_resource, name_server, name_type
from proxyless.xds.view import ResourceStatus, view_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.base import Metadata
    from proxyless.channel import ChannelView
    from proxyless.channel.service_config import MethodConfig
    from proxyless.xds.view import Missing, ResourceDump, ServerView, XdsView

# Resources in trouble; more are counted, not shown.
RESOURCES_SHOWN_MAX: Final = 20
# The same for what a withheld update waits for.
WAITS_SHOWN_MAX: Final = 5

# Kind of resource in words, and name.
_Need = tuple[str, str]


def explain_channel(view: ChannelView, path: str, metadata: Metadata = ()) -> Explanation:
    """What becomes of an RPC of this method on the channel now. The first line is the verdict."""
    rpc = Rpc(path, metadata)
    if view.state is State.SHUTDOWN:
        return _fails(rpc, "the channel is closed")
    if view.resolver is None:
        return _waits(rpc, f"channel to {view.target} is idle, its first RPC wakes it")
    xds = view_target(view.resolver)
    return _explain_plain(view, rpc) if xds is None else _explain_xds(view, xds, rpc)


def _fails(rpc: Rpc, problem: str, *parts: Explanation) -> Explanation:
    return Explanation("rpc", f"{rpc.path} fails: {problem}", {}, parts, problem)


def _waits(rpc: Rpc, reason: str, *parts: Explanation) -> Explanation:
    return Explanation("rpc", f"{rpc.path} waits: {reason}", {"waits": reason}, parts)


def explain_error(error: BaseException) -> Explanation:
    """Why the RPC failed that raised this: what it said, and what becomes of its like now.

    Of an asyncio channel: on its loop. Raises TypeError for what is no error of an RPC, and
    ValueError for one that no channel of ours in this process has raised; RuntimeError if nobody
    can be asked here: in the child of a fork, or in the thread of the background loop.
    """
    if not isinstance(error, grpc.RpcError):
        raise TypeError(f"error is {type(error).__name__}, wanted a grpc.RpcError")
    failed = recall(error)
    if failed is None:
        raise ValueError(f"{type(error).__name__} was not raised by a channel of proxyless here")
    code, details = error.code().name, error.details() or ""
    said = f"{failed.path} failed with {code}: {details}"
    facts = {"code": code, "details": details}
    now = failed.explain(explain_channel)
    if now is None:
        return Explanation("error", f"{said}; its channel is gone", facts, problem=details)
    # What is wrong now is most often what was wrong then, and in the same words.
    is_news = not now.problem or not (now.problem in details or details in now.problem)
    text = f"{said}; now {now.text.removeprefix(failed.path).strip()}" if is_news else said
    return Explanation("error", text, facts, (now,), details)


# ---------------------------------------------------------------------------------------------
# Without xDS


def _explain_plain(view: ChannelView, rpc: Rpc) -> Explanation:
    resolver = type(view.resolver).__name__
    target = Explanation("target", f"{_describe_target(view)}, resolved by {resolver}")
    if view.unroutable is not None:
        return _fails(rpc, view.unroutable.details, target)
    if view.service_config is None:
        return _waits(rpc, f"{view.target} is not resolved yet", target)
    pick = explain_pick(view.lb_tree())
    config = view.service_config.method_config(rpc.path)
    parts = (target, _explain_method(config), pick)
    if pick.problem and not config.wait_for_ready:
        return _fails(rpc, pick.problem, *parts)
    if waits := pick.problem or str(pick.facts.get("waits", "")):
        return _waits(rpc, waits, *parts)
    verdict = pick.text.removeprefix("now: ")
    return Explanation("rpc", f"{rpc.path} {verdict}", {}, parts)


def _describe_target(view: ChannelView) -> str:
    waiting = f", {view.waiting} RPCs wait" if view.waiting else ""
    return f"target {view.target}: {view.state}{waiting}"


def _explain_method(config: MethodConfig) -> Explanation:
    """What the service config says about the method."""
    notes = []
    if config.timeout_s is not None:
        notes.append(f"at most {config.timeout_s:g} s")
    if config.wait_for_ready is not None:
        notes.append("waits for ready" if config.wait_for_ready else "does not wait for ready")
    if (retry := config.retry_policy) is not None:
        codes = ", ".join(sorted(code.name for code in retry.retryable_codes))
        notes.append(f"up to {retry.attempts_max} attempts on {codes}")
    if (hedging := config.hedging_policy) is not None:
        notes.append(f"hedged, up to {hedging.attempts_max} attempts")
    return Explanation("method", f"service config: {'; '.join(notes) or 'nothing for the method'}")


# ---------------------------------------------------------------------------------------------
# With xDS


def _explain_xds(view: ChannelView, xds: XdsView, rpc: Rpc) -> Explanation:
    target = _explain_target(view, xds)
    trouble = xds.trouble or view.unroutable
    if trouble is not None:
        return _fails(rpc, trouble.details, target)
    if xds.config is None:
        first = next(iter(xds.waits_s), None)
        if first is None:
            return _waits(rpc, "the config is about to come", target)
        return _waits(rpc, f"{first}: not here yet{_describe_source(xds, first)}", target)
    rpc = replace(rpc, authority=xds.wanted.authority)
    found = explain(xds.config, rpc, xds.default_timeout_s, view.find_lb)
    return replace(found, parts=(target, *found.parts))


def _explain_target(view: ChannelView, xds: XdsView) -> Explanation:
    parts = [_explain_server(server) for server in xds.servers]
    parts += _explain_resources(xds)
    if xds.config is not None and xds.waits_s:
        parts.append(_explain_gate(xds))
    return Explanation("target", _describe_target(view), {"state": view.state.name}, tuple(parts))


def _explain_server(server: ServerView) -> Explanation:
    name = name_server(server.uri)
    if not server.status.is_ok:
        text = server.status.details
    else:
        text = f"{name}: {'answers' if server.is_asked else 'is being connected'}"
    if server.retry_in_s is not None:
        text += f", next attempt in {in_seconds(server.retry_in_s)}"
    facts = {"uri": server.uri, "is_reachable": server.status.is_ok}
    return Explanation("server", text, facts)


def _needs(xds: XdsView) -> list[_Need]:
    """What the target needs, as far as is known, in the order in which it is found out."""
    plan = xds.plan
    return [
        ("listener", xds.wanted.listener_name),
        *(("route configuration", name) for name in plan.route_configs),
        *(("cluster", name) for name in plan.clusters),
        *(("endpoints", name) for name in plan.endpoints),
    ]


def _held(xds: XdsView) -> dict[_Need, ResourceDump]:
    return {(name_type(dump.type_url), dump.name): dump for dump in xds.resources}


def _explain_gate(xds: XdsView) -> Explanation:
    """What keeps a newer config from being used: all of it waits for the slowest part (A74-15)."""
    shown = dict(islice(xds.waits_s.items(), WAITS_SHOWN_MAX))
    texts = [
        f"has waited {in_seconds(waited_s)} for {each}{_describe_source(xds, each)}"
        for each, waited_s in shown.items()
    ]
    if len(xds.waits_s) > len(shown):
        texts.append(f"and {len(xds.waits_s) - len(shown)} more")
    facts = {
        "waits": {str(each): waited_s for each, waited_s in shown.items()},
        "waits_total": len(xds.waits_s),
    }
    return Explanation("pending", f"update withheld: {'; '.join(texts)}", facts)


def _describe_source(xds: XdsView, missing: Missing) -> str:
    """What is known about where something missing has to come from, as the end of a sentence."""
    for dump in xds.resources:
        if name_resource(dump.type_url, dump.name) == missing.subject:
            return _describe_sender(dump, xds.servers)
    is_dns_name = any(name_dns(*name) == missing.subject for name in xds.plan.dns)
    return ", no answer from DNS yet" if is_dns_name else ", not requested yet"


def _is_awaited(dump: ResourceDump) -> bool:
    return dump.status is ResourceStatus.REQUESTED


def _describe_missing(dump: ResourceDump, servers: Sequence[ServerView]) -> str:
    name = name_resource(dump.type_url, dump.name)
    return f"{name}: not here yet{_describe_sender(dump, servers)}"


def _describe_sender(dump: ResourceDump, servers: Sequence[ServerView]) -> str:
    """Which server has to send a resource, and how long it may take, as the end of a sentence."""
    for server in servers:
        wait_s = server.waits.get((dump.type_url, dump.name))
        if wait_s is not None:
            return f", {name_server(server.uri)} has {in_seconds(wait_s)} left to send it"
    last = servers[-1] if servers else None
    if last is None:
        return ", no server was asked"
    if not last.status.is_ok:
        return f": {last.status.details}"
    return f", {name_server(last.uri)} is being connected"


def _explain_resources(xds: XdsView) -> Iterator[Explanation]:
    """Listener and routes in any case; of the rest what is not as it should be."""
    held, sound = _held(xds), Counter[str]()
    shown = 0
    for kind, name in _needs(xds):
        dump = held.get((kind, name))
        if dump is None:
            continue
        is_sound = dump.status is ResourceStatus.ACKED and dump.error.is_ok
        if is_sound and kind in {"cluster", "endpoints"}:
            sound[kind] += 1
        elif shown < RESOURCES_SHOWN_MAX:
            shown += 1
            yield _explain_resource(dump, xds.servers)
    if sound:
        text = f"{sound.total()} other resources: ACKED"
        yield Explanation("resources", text, dict(sound))


def _explain_resource(dump: ResourceDump, servers: Sequence[ServerView]) -> Explanation:
    name = name_resource(dump.type_url, dump.name)
    facts = {"type": dump.type_url, "name": dump.name, "status": dump.status.name}
    facts["version"] = dump.version
    if _is_awaited(dump):
        return Explanation("resource", _describe_missing(dump, servers), facts)
    version = f", version {quote(dump.version)}" if dump.version else ""
    error = f": {dump.error.details}" if not dump.error.is_ok else ""
    refused = f", refused version {quote(dump.failed_version)}" if dump.failed_version else ""
    text = f"{name}: {dump.status.name}{version}{refused}{error}"
    return Explanation("resource", text, facts, problem=dump.error.details)
