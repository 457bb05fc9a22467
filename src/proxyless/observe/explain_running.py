"""Explanation of an RPC on a running channel, and of a failed RPC.

Specs: A74 (what an xDS target needs), A40 (words for the state of a resource).

`explain` repeats the decisions for the config of the channel, and `explain_lb` adds the result of a
pick for each cluster. Without a config, the explanation names the missing resources and their
servers. It has no side effects: no pick, no request, no connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import grpc

from proxyless.base import State, one_line, quote
from proxyless.base.explanation import Explanation
from proxyless.base.texts import count
from proxyless.front.call_route import call_route
from proxyless.front.channel_api import failed_rpc_of
from proxyless.lb.description import format_seconds
from proxyless.observe.explain import Rpc, explain
from proxyless.observe.explain_lb import explain_pick
from proxyless.xds.error_texts import format_time, name_resource, name_server, name_type
from proxyless.xds.view import (
    NoAnswer,
    ResourceStatus,
    describe_sender,
    describe_source,
    view_target,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.base import Metadata
    from proxyless.channel import ChannelView
    from proxyless.channel.service_config import MethodConfig
    from proxyless.xds.view import Missing, ResourceDump, ServerView, XdsView

# Resources with a problem; more are counted, not shown.
RESOURCES_SHOWN_MAX: Final = 20
# Resources that a withheld update waits for.
WAITS_SHOWN_MAX: Final = 5


def explain_channel(view: ChannelView, path: str, metadata: Metadata = ()) -> Explanation:
    """Explain an RPC of this method on the channel now. The first line is the verdict."""
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
    """Explain the error of an RPC, and what would happen to such an RPC now.

    For an asyncio channel, call it on the channel's loop. Raises TypeError if it is not an error of
    an RPC, ValueError if no channel of this package in this process has raised it, and RuntimeError
    in the child of a fork and in the thread of the background loop.
    """
    if not isinstance(error, grpc.RpcError):
        raise TypeError(f"error is {type(error).__name__}, wanted a grpc.RpcError")
    failed = failed_rpc_of(error)
    if failed is None:
        raise ValueError(f"{type(error).__name__} was not raised by a channel of proxyless here")
    code, details = error.code().name, error.details() or ""
    text = f"{failed.path} failed with {code}: {details}"
    route = call_route(error)
    facts: dict[str, object] = {"code": code, "details": details, "attempts": route.attempts}
    if route.address is not None:
        facts["address"] = route.address
    now = failed.explain(explain_channel)
    if now is None:
        return Explanation("error", f"{text}; its channel is gone", facts, problem=details)
    # The present problem is often the same, and then it is not repeated.
    if not now.problem or not (now.problem in details or details in now.problem):
        text += f"; now {now.text.removeprefix(failed.path).strip()}"
    return Explanation("error", text, facts, (now,), details)


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
    waiting = ""
    if view.waiting:
        longest = format_seconds(view.longest_wait_s)
        waiting = f", {count(view.waiting, 'RPC waits', 'RPCs wait')}, the oldest for {longest}"
    return f"target {view.target}: {view.state}{waiting}"


def _explain_method(config: MethodConfig) -> Explanation:
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


def _explain_xds(view: ChannelView, xds: XdsView, rpc: Rpc) -> Explanation:
    target = _explain_target(view, xds)
    error = xds.error or view.unroutable
    if error is not None:
        return _fails(rpc, error.details, target)
    if xds.config is None:
        first = next(iter(xds.waits_s), None)
        if first is None:
            return _waits(rpc, "the config is about to come", target)
        return _waits(rpc, f"{first}: not here yet{_describe_source(xds, first)}", target)
    rpc = replace(rpc, authority=xds.target.authority)
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
        # A failure, which may be that of an earlier connection.
        text = server.newest.details + (", is connected now" if server.is_stream_ready else "")
    elif server.has_answered:
        text = f"{name}: answers"
        if server.short_streams:
            ended = f"its last {server.short_streams} streams ended soon: {server.last_end}"
            text += f", {one_line(ended)}"
    else:
        state = "is connected" if server.is_stream_ready else "is being connected"
        text = f"{name}: {state}"
    if server.retry_in_s == 0:
        text += ", is being connected"
    elif server.retry_in_s is not None:
        text += f", next attempt in {format_seconds(server.retry_in_s)}"
    facts = {"uri": server.uri, "is_reachable": server.status.is_ok}
    return Explanation("server", text, facts)


def _explain_gate(xds: XdsView) -> Explanation:
    """Resources that a withheld update waits for (A74-15, D50)."""
    shown = dict(islice(xds.waits_s.items(), WAITS_SHOWN_MAX))
    is_held = bool(xds.plan.unanswered)
    phrase = "waits for {} since {}" if is_held else "has waited {1} for {0}"
    texts = [
        phrase.format(each, format_seconds(waited_s)) + _describe_source(xds, each, is_held=is_held)
        for each, waited_s in shown.items()
    ]
    if len(xds.waits_s) > len(shown):
        texts.append(f"and {len(xds.waits_s) - len(shown)} more")
    facts = {
        "waits": {str(each): waited_s for each, waited_s in shown.items()},
        "waits_total": len(xds.waits_s),
    }
    verdict = "held" if is_held else "update withheld"
    return Explanation("pending", f"{verdict}: {'; '.join(texts)}", facts)


def _describe_source(xds: XdsView, missing: Missing, *, is_held: bool = False) -> str:
    """Source of a missing resource or DNS name, as the end of a sentence."""
    if is_held and missing in xds.plan.unanswered and _is_unreachable(xds.servers):
        # The cause is in the line of the server.
        return ", control plane unreachable"
    return describe_source(missing, xds.plan, xds.resources, xds.servers)


def _is_unreachable(servers: Sequence[ServerView]) -> bool:
    return any(not server.status.is_ok for server in servers)


def _explain_resources(xds: XdsView) -> Iterator[Explanation]:
    """The listener and the routes, and other resources that are not ACKED or have an error."""
    held = {(name_type(dump.type_url), dump.name): dump for dump in xds.resources}
    sound = Counter[str]()
    shown = 0
    needed = [
        ("listener", xds.target.listener_name),
        *(("route configuration", name) for name in xds.plan.route_configs),
        *(("cluster", name) for name in xds.plan.clusters),
        *(("endpoints", name) for name in xds.plan.endpoints),
        *(("endpoint", name) for name in xds.plan.collections),
    ]
    for kind, name in needed:
        dump = held.get((kind, name))
        if dump is None:
            continue
        is_sound = dump.status is ResourceStatus.ACKED and (
            dump.error.is_ok or _is_outage(dump, xds.servers)
        )
        if is_sound and kind in {"cluster", "endpoints", "endpoint"}:
            sound[kind] += 1
        elif shown < RESOURCES_SHOWN_MAX:
            shown += 1
            yield _explain_resource(dump, xds.servers)
    if sound:
        text = f"{count(sound.total(), 'other resource')}: ACKED"
        yield Explanation("resources", text, dict(sound))


def _is_outage(dump: ResourceDump, servers: Sequence[ServerView]) -> bool:
    """Whether the error of a resource is that of a server, which has a line of its own."""
    return any(dump.error == server.status for server in servers if not server.status.is_ok)


def _explain_resource(dump: ResourceDump, servers: Sequence[ServerView]) -> Explanation:
    name = name_resource(dump.type_url, dump.name)
    facts = {"type": dump.type_url, "name": dump.name, "status": dump.status.name}
    facts["version"] = dump.version
    if dump.saved_s is not None:
        facts["saved"] = when = format_time(dump.saved_s)
        what = f"from the config cache, saved at {when}, version {quote(dump.version)}"
        return Explanation("resource", f"{name}: {what}", facts)
    is_outage = _is_outage(dump, servers)
    if dump.status is ResourceStatus.REQUESTED:
        sender = ", no xds server answers" if is_outage else describe_sender(dump, servers)
        return Explanation("resource", f"{name}: not here yet{sender}", facts)
    if isinstance(dump.error, NoAnswer) and not dump.version:
        # A timer of a silent stream: the status is that of a resource that does not exist.
        return Explanation("resource", dump.error.details, facts, problem=dump.error.details)
    version = f", version {quote(dump.version)}" if dump.version else ""
    error = "" if dump.error.is_ok or is_outage else f": {dump.error.details}"
    refused = f", refused version {quote(dump.failed_version)}" if dump.failed_version else ""
    text = f"{name}: {dump.status.name}{version}{refused}{error}"
    return Explanation("resource", text, facts, problem=dump.error.details)
