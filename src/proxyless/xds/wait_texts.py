"""Texts about missing resources: which server has to send each, and within what time.

Used by errors of RPCs and by explanations, so that both have the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.lb.description import format_seconds
from proxyless.xds.error_texts import name_dns, name_resource, name_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.xds.client.api import ResourceDump, ServerView
    from proxyless.xds.config.plan import Missing, Plan


def describe_source(
    missing: Missing, plan: Plan, resources: Sequence[ResourceDump], servers: Sequence[ServerView]
) -> str:
    """Source of a missing resource or DNS name, as the end of a sentence."""
    for dump in resources:
        if name_resource(dump.type_url, dump.name) == missing.subject:
            return describe_sender(dump, servers)
    is_dns_name = any(name_dns(*name) == missing.subject for name in plan.dns)
    return ", no answer from DNS yet" if is_dns_name else ", not requested yet"


def describe_sender(dump: ResourceDump, servers: Sequence[ServerView]) -> str:
    """The server that has to send a resource, and its time limit, as the end of a sentence."""
    for server in servers:
        wait_s = server.waits.get((dump.type_url, dump.name))
        if wait_s == 0:
            # Its host may be gone; 20 s later the connection is closed (D50).
            return f", {name_server(server.uri)} has not sent it in time, nor answered a ping yet"
        if wait_s is not None:
            return f", {name_server(server.uri)} has {format_seconds(wait_s)} left to send it"
    last = servers[-1] if servers else None
    if last is None:
        return ", there is no server"
    if not last.status.is_ok:
        return f": {last.newest.details}"
    if last.is_stream_ready:
        # The timer has fired, and the server is silent (D50); or it does not read requests.
        return f", {name_server(last.uri)} is connected and has not sent it"
    return f", {name_server(last.uri)} is being connected"
