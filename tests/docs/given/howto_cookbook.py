"""Precondition: the meshes of the page are served, and each of their endpoints is a backend.

A backend is on this machine and answers every method with the address that it has on the page.
"""

from __future__ import annotations

import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from proxyless.base import ValidationErrors
from proxyless.controlplane import CLUSTER, ENDPOINTS, ControlPlane, Resource, Snapshot
from proxyless.controlplane.builders import pack
from proxyless.controlplane.documents import parse_documents
from proxyless.protos import Proto, message_class
from tests.docs.pages import ROOT, parse_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class _Answer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types here.
    """Answers every unary RPC with one text."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def answer(_request: bytes, _context: object) -> bytes:
            return self._text

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def backend(address: str) -> AsyncIterator[int]:
    """The port of a backend that answers with this address."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_Answer(address)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def socket_addresses(resource: Resource, message: Proto) -> Iterator[Proto]:
    if resource.type_url == ENDPOINTS:
        groups = message.endpoints
    else:
        groups = message.load_assignment.endpoints if resource.type_url == CLUSTER else []
    for group in groups:
        for endpoint in group.lb_endpoints:
            yield endpoint.endpoint.address.socket_address


def page_meshes(page: str) -> Iterator[list[Resource]]:
    """The resources of each mesh on the page."""
    for block in parse_page(page, (ROOT / page).read_text()):
        if block.kind == "file" and block.text.startswith("service:"):
            errors = ValidationErrors()
            found = [resource for _, resource in parse_documents(block.text, errors)]
            errors.raise_if_any(block.argument)
            yield found


@asynccontextmanager
async def given(names: dict[str, Any], page: str = "docs/howto/cookbook.md") -> AsyncIterator[None]:
    del names
    ports: dict[str, int] = {}
    served: dict[tuple[str, str], Resource] = {}
    async with AsyncExitStack() as stack:
        for number, mesh in enumerate(page_meshes(page)):
            for resource in mesh:
                message = resource.message()
                for socket in socket_addresses(resource, message):
                    shown = f"{socket.address}:{socket.port_value}"
                    if shown not in ports:
                        ports[shown] = await stack.enter_async_context(backend(shown))
                    socket.address, socket.port_value = "127.0.0.1", ports[shown]
                renamed = _rename(message, number)
                served[(resource.type_url, renamed.name)] = renamed
        control_plane = ControlPlane(Snapshot.of(served.values()))
        await stack.enter_async_context(control_plane)
        os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(control_plane.bootstrap())
        yield


def _rename(message: Proto, number: int) -> Resource:
    """Clusters of different meshes have equal names, so each mesh gets names of its own."""
    kind = message.DESCRIPTOR.name
    prefix = f"mesh-{number}-"
    if kind == "RouteConfiguration":
        for host in message.virtual_hosts:
            for route in host.routes:
                if route.route.HasField("cluster"):
                    route.route.cluster = prefix + route.route.cluster
                for weighted in route.route.weighted_clusters.clusters:
                    weighted.name = prefix + weighted.name
    elif kind == "ClusterLoadAssignment":
        message.cluster_name = prefix + message.cluster_name
    elif kind == "Cluster":
        message.name = prefix + message.name
        message.load_assignment.cluster_name = message.name
        if message.HasField("cluster_type"):
            _rename_leaves(message, prefix)
    return Resource.of(message)


def _rename_leaves(message: Proto, prefix: str) -> None:
    packed = message.cluster_type.typed_config
    config = message_class(packed.type_url.rpartition("/")[2]).FromString(packed.value)
    config.clusters[:] = [prefix + name for name in config.clusters]
    pack(config, packed)
