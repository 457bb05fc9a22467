"""HTTP proxies of our client beside grpcio's: variables, options, outcomes.

Each library makes the same calls, in a process of its own, through the same proxies to the same
servers of grpcio's.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from proxyless.base import Address, IpAddress, UnixAddress
from proxyless.controlplane import (
    CLUSTER,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
)
from proxyless.xds.parsing.http_proxy import HTTP_CONNECT_GUARD
from tests.certificates import CertificateAuthority
from tests.connect_proxy import ConnectProxy, connect_proxy, proxied, with_proxy
from tests.interop.backends import LOOPBACK, AioBackend, ServerOptions
from tests.worlds.grpcio_peers import backends, grpcio_client

NAME = "backend.test"
OK = ["OK", "through"]
UNAVAILABLE = ["UNAVAILABLE", ""]
USER = "user:pass%20word"
AUTHORIZATION = "Basic dXNlcjpwYXNzIHdvcmQ="


@dataclass
class Case:
    """One call, its result, and the requests to the proxies."""

    target: str
    environ: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, Any]] = field(default_factory=list)
    roots: str = ""
    expected: list[str] = field(default_factory=lambda: OK)
    proxy_requests: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class HttpProxyWorld:
    """Servers, and proxies in front of them. The names are known to the proxies only."""

    plain: IpAddress
    secure: IpAddress
    unix: UnixAddress
    authority: CertificateAuthority
    open: ConnectProxy
    closed: ConnectProxy

    async def run(self, library: str, cases: list[Case]) -> list[list[str]]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.interop.proxy_client",
            library,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate(json.dumps(list(map(asdict, cases))).encode())
        assert process.returncode == 0
        outcomes: list[list[str]] = json.loads(output)
        return outcomes

    def proxy_requests(self) -> set[tuple[str, str]]:
        """The requests to the proxies since the last call, with their clients."""
        found = {
            (target, headers.get("proxy-authorization", ""))
            for proxy in (self.open, self.closed)
            for target, headers in proxy.requests
        }
        for proxy in (self.open, self.closed):
            proxy.requests.clear()
        return found


@pytest.fixture
async def world(tmp_path: Path, authority: CertificateAuthority) -> AsyncIterator[HttpProxyWorld]:
    async with AsyncExitStack() as exits:

        async def serve(place: Address = LOOPBACK, credentials: object = None) -> Address:
            backend = AioBackend()
            await backend.start(ServerOptions(place=place, credentials=credentials))
            exits.push_async_callback(backend.stop)
            return backend.address

        certificate, key = authority.issue([NAME])
        plain = await serve()
        secure = await serve(credentials=grpc.ssl_server_credentials([(key, certificate)]))
        unix = await serve(UnixAddress(str(tmp_path / "s")))
        assert isinstance(plain, IpAddress)
        assert isinstance(secure, IpAddress)
        assert isinstance(unix, UnixAddress)
        names = {
            f"{NAME}:50051": plain,
            f"{NAME}:443": plain,
            f"{NAME}:8443": secure,
            "other.test:8443": secure,
        }
        proxies = [
            await exits.enter_async_context(connect_proxy(names, authorization))
            for authorization in ("", AUTHORIZATION)
        ]
        yield HttpProxyWorld(plain, secure, unix, authority, *proxies)


def cases_of(world: HttpProxyWorld) -> list[Case]:
    uri, dead = world.open.uri, "http://127.0.0.1:1"
    through = {"http_proxy": uri}
    closed = str(world.closed.address)
    with_user = {"http_proxy": f"http://{USER}@{closed}"}
    name, plain = f"{NAME}:50051", str(world.plain)
    roots = world.authority.certificate_pem.decode()
    return [
        # Names are the proxy's to look up, and 443 is the port unless the target has one.
        Case(f"dns:///{name}", through, proxy_requests=[(name, "")]),
        Case(name, through, proxy_requests=[(name, "")]),
        Case(NAME, through, proxy_requests=[(f"{NAME}:443", "")]),
        Case(f"ipv4:{plain}", through, proxy_requests=[(plain, "")]),
        Case(f"unix:{world.unix.path}", through),
        # The first variable that is set counts, in lower case only.
        Case(
            name,
            {"grpc_proxy": uri, "https_proxy": dead, "http_proxy": dead},
            proxy_requests=[(name, "")],
        ),
        Case(name, {"https_proxy": uri, "http_proxy": dead}, proxy_requests=[(name, "")]),
        Case(plain, {"grpc_proxy": "", "http_proxy": dead}),
        Case(plain, {"HTTP_PROXY": dead}),
        Case(plain, {"http_proxy": "https://127.0.0.1:1"}),
        Case(plain, {"http_proxy": "127.0.0.1:1"}),
        # Exceptions.
        Case(plain, {"http_proxy": dead, "no_proxy": "127.0.0.1"}),
        Case(plain, {"http_proxy": dead, "no_proxy": "10.0.0.0/8, 127.0.0.0/8"}),
        Case(plain, {"http_proxy": dead, "no_grpc_proxy": "127.0.0.1", "no_proxy": ""}),
        Case(
            name,
            {**through, "no_proxy": "*,kend.test,backend.test:50051"},
            proxy_requests=[(name, "")],
        ),
        Case(name, {**through, "no_proxy": NAME, "no_grpc_proxy": ""}, proxy_requests=[(name, "")]),
        # This one is not looked up by the proxy, so not at all.
        Case(name, {**through, "no_proxy": ".TEST"}, expected=UNAVAILABLE),
        # Options.
        Case(plain, {"http_proxy": dead}, [("grpc.enable_http_proxy", 0)]),
        Case(name, {"http_proxy": dead}, [("grpc.http_proxy", uri)], proxy_requests=[(name, "")]),
        Case(plain, {"http_proxy": dead}, [("grpc.http_proxy", "")]),
        # Credentials of the proxy.
        Case(name, with_user, proxy_requests=[(name, AUTHORIZATION)]),
        Case(
            name,
            {"http_proxy": f"http://{closed}"},
            expected=UNAVAILABLE,
            proxy_requests=[(name, "")],
        ),
        # Errors of the proxy, and unreachable proxies.
        Case("127.0.0.1:1", through, expected=UNAVAILABLE, proxy_requests=[("127.0.0.1:1", "")]),
        Case(name, {"http_proxy": dead}, expected=UNAVAILABLE),
        # TLS is with the server: the name of the target counts, not that of the proxy.
        Case(f"{NAME}:8443", through, roots=roots, proxy_requests=[(f"{NAME}:8443", "")]),
        Case(
            "other.test:8443",
            through,
            roots=roots,
            expected=UNAVAILABLE,
            proxy_requests=[("other.test:8443", "")],
        ),
    ]


@pytest.mark.parametrize("library", ["proxyless", "grpcio"])
async def test_proxies_are_found_and_used(world: HttpProxyWorld, library: str) -> None:
    cases = cases_of(world)
    outcomes = await world.run(library, cases)
    differences = [
        (case.target, case.environ, outcome)
        for case, outcome in zip(cases, outcomes, strict=True)
        if outcome != case.expected
    ]
    assert differences == []
    assert world.proxy_requests() == {pair for case in cases for pair in case.proxy_requests}


async def test_grpcio_sends_the_name_of_an_xds_target_to_the_proxy(world: HttpProxyWorld) -> None:
    """grpcio does not use xDS then; ours uses the control plane (docs/differences.md)."""
    case = Case("xds:///orders", {"http_proxy": world.open.uri}, expected=UNAVAILABLE)
    [outcome] = await world.run("grpcio", [case])
    assert outcome == UNAVAILABLE
    assert world.open.targets[0] == "orders:443"


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_grpcio_uses_the_proxies_of_a_mesh_if_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    """And refuses the cluster otherwise. Ours: tests/e2e/test_xds_http_connect.py."""
    monkeypatch.delenv(HTTP_CONNECT_GUARD, raising=False)
    if is_enabled:
        monkeypatch.setenv(HTTP_CONNECT_GUARD, "true")
    nowhere = "192.0.2.5:443"
    async with (
        backends("a") as [backend],
        connect_proxy({nowhere: IpAddress("127.0.0.1", backend.port)}) as proxy,
    ):
        snapshot = Snapshot.of(
            [
                listener("api", [route(cluster="orders")]),
                proxied(eds_cluster("orders")),
                endpoints("orders", [with_proxy(lb_endpoint(nowhere), proxy.address)]),
            ]
        )
        async with (
            ControlPlane(snapshot) as plane,
            grpcio_client(plane.bootstrap(), "xds:///api") as client,
        ):
            [answer] = await client.call()
            if is_enabled:
                assert answer == "a"
                assert proxy.targets == [nowhere]
            else:
                assert answer.startswith("UNAVAILABLE")
                await plane.wait_for_nack(CLUSTER)
                assert proxy.requests == []
