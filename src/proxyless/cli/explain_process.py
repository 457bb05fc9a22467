"""Explanations of running processes: of the live service, or of the resources in CSDS (A40).

The live service runs `channel.explain` in the process. CSDS has resources only: the decisions are
repeated here for them, without the states of connections and LB policies. It is what processes with
grpcio's channels have.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base.frozen import frozen
from proxyless.base.texts import count, quote
from proxyless.cli.admin_client import (
    describe_failure,
    fetch_explanations,
    fetch_status,
    is_unimplemented,
)
from proxyless.cli.output import note
from proxyless.observe import Explanation, explain_offline, read_status, to_json, to_text
from proxyless.xds.view import USER_AGENT_NAME, default_timeout_s

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from proxyless.observe import ClientStatus, OfflineMesh, Rpc
    from proxyless.protos import Proto
    from proxyless.xds.view import ConfigTarget

# CSDS has no field for these.
_NO_STATES: Final = "the states of its connections and policies are not known here: channel.explain"


class NoExplanationError(Exception):
    """There is no explanation. The arguments are the reasons, one line each."""


@frozen
class ShownExplanation:
    """An explanation to print: lines of text, a JSON document, and whether RPCs fail or wait."""

    text: str
    document: dict[str, Any]
    has_problem: bool

    @classmethod
    def of(cls, explanation: Explanation) -> ShownExplanation:
        has_problem = bool(explanation.problem or explanation.facts.get("waits"))
        return cls(to_text(explanation), to_json(explanation), has_problem)


def explain_live(parsed: argparse.Namespace) -> list[ShownExplanation] | None:
    """Explanations of the channels of a process; None if it has no live service.

    Raises NoExplanationError.
    """
    address = parsed.live
    try:
        response = fetch_explanations(
            address, parsed.method, parsed.headers, parsed.target, parsed.timeout
        )
    except grpc.RpcError as error:
        if is_unimplemented(error):
            return None
        raise NoExplanationError(describe_failure(address, error)) from None
    if response.is_truncated:
        note("explain", f"{address!r} has more channels: choose some with --target")
    if response.silent_loops:
        note(
            "explain",
            f"{count(response.silent_loops, 'event loop')} of {address!r} did not answer in time",
        )
    if not response.explanations:
        raise NoExplanationError(f"{address!r} has no channel of proxyless")
    try:
        return [
            _read(each, has_heading=len(response.explanations) > 1)
            for each in response.explanations
        ]
    except ValueError:
        text = f"{address!r} sent an explanation that is not in JSON"
        raise NoExplanationError(text) from None


def _read(explanation: Proto, *, has_heading: bool) -> ShownExplanation:
    document = json.loads(explanation.json)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    text = explanation.text
    if has_heading:
        text = f"channel {explanation.channel_id} to {explanation.target}\n{text}\n"
    place = {"channel": explanation.channel_id, "target": explanation.target}
    return ShownExplanation(text, place | document, bool(explanation.problem))


def fetch_clients(address: str, timeout_s: float) -> list[ClientStatus]:
    """The xDS clients of a process, with their resources. Raises NoExplanationError."""
    try:
        return read_status(fetch_status(address, timeout_s, has_contents=True))
    except grpc.RpcError as error:
        raise NoExplanationError(describe_failure(address, error)) from None


def explain_held(
    address: str, client: ClientStatus, target: ConfigTarget, mesh: OfflineMesh, rpc: Rpc
) -> Explanation:
    """Explanation from the resources that a client of the process holds."""
    mesh.add_held(client.resources)
    target = replace(target, node_id=client.node_id)
    is_ours = client.user_agent.startswith(USER_AGENT_NAME)
    # The default of A31 is not implemented by the other clients of gRPC.
    found = explain_offline(target, mesh, rpc, default_timeout_s() if is_ours else inf)
    source = f"held by node {quote(client.node_id)} at {address}; {_NO_STATES}"
    if not is_ours:
        source += f"; its client is {quote(client.user_agent)}: see also lint --for grpcio"
    left_out = sum(row.is_left_out for row in client.resources)
    if left_out:
        source += f"; it left out the contents of {count(left_out, 'resource')}"
    return replace(found, parts=(Explanation("source", source), *found.parts))


def choose_client(
    clients: Sequence[ClientStatus], target: str, listener: str
) -> ClientStatus | None:
    """The client of this target, or else one that is shared by targets and holds its listener."""
    for client in clients:
        if client.scope == target:
            return client
    holding = (
        each
        for each in clients
        if any(
            row.name == listener and row.type_url.endswith(".Listener") for row in each.resources
        )
    )
    return next(holding, None)
