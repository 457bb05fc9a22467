"""A small HTTP proxy on real sockets, which records its requests.

It supports CONNECT only. It resolves names that the system cannot resolve, which proves that the
client did not look them up. `proxied` and `with_proxy` name the proxy in xDS resources.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from proxyless.base import IpAddress
from proxyless.protos import Proto
from proxyless.xds.parsing.http_proxy import ADDRESS, HTTP_11_PROXY, PROXY_ADDRESS
from tests.worlds.transports import raw_server
from tests.worlds.xds_messages import any_of, proto


@dataclass
class ConnectProxy:
    """One proxy."""

    # Addresses of names; all other targets are addresses.
    names: Mapping[str, IpAddress] = field(default_factory=dict)
    # Required Proxy-Authorization; empty: none.
    authorization: str = ""
    # Set when it listens.
    address: IpAddress = field(default_factory=lambda: IpAddress("127.0.0.1", 0))
    # Requests: the target, and the headers in lower case.
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    # Writers of open tunnels.
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def uri(self) -> str:
        return f"http://{self.address}"

    @property
    def targets(self) -> list[str]:
        return [target for target, _ in self.requests]

    def cut(self) -> None:
        """End every tunnel at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        request, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = request.split(" ")
        assert (method, version) == ("CONNECT", "HTTP/1.1")
        headers = {name.lower(): value for name, value in (line.split(": ") for line in lines)}
        self.requests.append((target, headers))
        if self.authorization and headers.get("proxy-authorization") != self.authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        await self._relay(self._find(target), reader, writer)

    def _find(self, target: str) -> IpAddress:
        host, _, port = target.rpartition(":")
        if target in self.names:
            return self.names[target]
        return IpAddress(host.strip("[]"), int(port))

    async def _relay(
        self, address: IpAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there, back = await asyncio.open_connection(address.host, address.port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            await writer.drain()
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
            self._writers.add(writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, back))
                both.create_task(_pump(there, writer))
        finally:
            self._writers.discard(writer)
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    # The tunnel is over when either side ends.
    writer.close()


@asynccontextmanager
async def connect_proxy(
    names: Mapping[str, IpAddress] | None = None, authorization: str = ""
) -> AsyncIterator[ConnectProxy]:
    """A proxy that listens."""
    proxy = ConnectProxy(names or {}, authorization)
    async with raw_server(proxy.serve) as proxy.address:
        yield proxy


# A mesh that names proxies (A86)


def proxied(cluster: Proto) -> Proto:
    """The cluster, with the socket that it has behind proxies."""
    inner = cluster.transport_socket if cluster.HasField("transport_socket") else None
    outer = proto(HTTP_11_PROXY, transport_socket=inner)
    cluster.transport_socket.name = "envoy.transport_sockets.http_11_proxy"
    cluster.transport_socket.typed_config.CopyFrom(any_of(outer))
    return cluster


def with_proxy(owner: Proto, proxy: IpAddress) -> Proto:
    """An endpoint or a locality, with a proxy in its metadata."""
    address = proto(
        ADDRESS,
        socket_address={"address": proxy.host, "port_value": proxy.port},
    )
    owner.metadata.typed_filter_metadata[PROXY_ADDRESS].CopyFrom(any_of(address))
    return owner
