"""RPCs through a mesh that Istio's own generators configure, on channels of a stack.

    python -m tools.peers.clients.istio <proxyless|grpcio> <istiod> <sotw|delta> [<case>...]

The variant is that of the xDS protocol; only ours has the incremental one. Prints a line of JSON
per case: its name, and its error or null.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.experimental

from tools.peers.clients.istio_mesh import (
    IDENTITY,
    REGION,
    Backend,
    Document,
    Istiod,
    backends,
    bootstrap,
    destination_rule,
    endpoint,
    istiod,
    make_certificates,
    route_to,
    service_entry,
    target,
    virtual_service,
)
from tools.peers.clients.stacks import Untyped, load_stack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CASE_TIMEOUT_S: Final = 60.0
_RPC_TIMEOUT_S: Final = 20.0
_MANY: Final = 1_000
# Longer than the 15 s that gRPC gives to routes whose timeout is not set.
_LONG_STREAM_S: Final = 18
_GET: Final = "/shop.Orders/Get"
# More than four standard deviations of 400 RPCs of which a quarter go to v2.
_CANARY_SPREAD: Final = 40
_ROUTE_TIMEOUT_S: Final = 2.0
_FAULT_DELAY_S: Final = 0.5
# Istio ejects hosts, and so fails over between localities, only with outlier detection.
_OUTLIERS: Final = {"consecutive5xxErrors": 5, "interval": "5s"}


class Cases:
    """The cases, each a method. Each has a service of its own, named as the method."""

    def __init__(self, stack: Untyped, plane: Istiod, servers: Mapping[str, Backend]) -> None:
        self._stack = stack
        self._plane = plane
        self._servers = servers

    async def canary(self) -> None:
        counts = await self._count("canary", 400)
        assert abs(counts["v2"] - 100) < _CANARY_SPREAD, f"{counts}, wanted 100 of 400 for v2"

    async def header(self) -> None:
        counts = await self._count("header", 40, metadata=(("x-user", "alice"),))
        assert counts == {"v2": 40}, counts
        counts = await self._count("header", 40)
        assert "v2" not in counts, counts

    async def subset(self) -> None:
        counts = await self._count("subset", 40)
        assert set(counts) == {"v1a", "v1b"}, counts

    async def timeout(self) -> None:
        code = await self._code("timeout", "/shop.Orders/Slow")
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED, code

    async def timeout_reaches_the_server(self) -> None:
        remaining_s = (await self._get("timeout"))["remaining_s"]
        assert remaining_s is not None, "the server has no deadline"
        assert remaining_s <= _ROUTE_TIMEOUT_S, remaining_s

    async def retries(self) -> None:
        async with self._channel("retries") as channel:
            reply = await channel.unary_unary("/shop.Orders/Flaky")(b"2", timeout=_RPC_TIMEOUT_S)
        assert reply == b"2", reply

    async def retries_end(self) -> None:
        code = await self._code("retries", "/shop.Orders/Flaky", b"3")
        assert code is grpc.StatusCode.UNAVAILABLE, code

    async def fault_abort(self) -> None:
        code = await self._code("fault_abort", _GET)
        assert code is grpc.StatusCode.UNAVAILABLE, code

    async def fault_delay(self) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await self._get("fault_delay")
        assert loop.time() - start_s >= _FAULT_DELAY_S

    async def circuit_breaker(self) -> None:
        async with self._channel("circuit_breaker") as channel:
            slow = channel.unary_unary("/shop.Orders/Slow")
            calls = [slow(b"1.5", timeout=_RPC_TIMEOUT_S) for _ in range(20)]
            codes = Counter([await call.code() for call in calls])
        wanted = {grpc.StatusCode.OK: 5, grpc.StatusCode.UNAVAILABLE: 15}
        assert codes == wanted, codes

    async def outlier_detection(self) -> None:
        """gRPC ignores consecutive errors (A50): the configuration is accepted."""
        counts = await self._count("outlier_detection", 40)
        assert set(counts) == {"v1a", "v1b"}, counts

    async def hash_of_header(self) -> None:
        for user in "abcdef":
            counts = await self._count("hash_of_header", 10, metadata=(("x-user", user),))
            assert len(counts) == 1, counts

    async def locality_preferred(self) -> None:
        counts = await self._count("locality_preferred", 40)
        assert set(counts) == {"v1a"}, counts

    async def locality_failover(self) -> None:
        counts = await self._count("locality_failover", 20)
        assert set(counts) == {"v2"}, counts

    async def mutual_tls(self) -> None:
        counts = await self._count("mutual_tls", 10)
        assert counts == {"secure": 10}, counts

    async def mutual_tls_of_another_identity(self) -> None:
        code = await self._code("other_identity", _GET)
        assert code is grpc.StatusCode.UNAVAILABLE, code

    async def changes_under_load(self) -> None:
        """Weights, subsets and endpoints change 40 times while RPCs run: none is lost."""
        failed: Counter[str] = Counter()
        is_done = asyncio.Event()
        async with self._channel("changes") as channel:

            async def send() -> int:
                get, count = channel.unary_unary(_GET), 0
                while not is_done.is_set():
                    call = get(b"", timeout=_RPC_TIMEOUT_S)
                    if (code := await call.code()) is not grpc.StatusCode.OK:
                        failed[f"{code.name}: {await call.details()}"] += 1
                    count += 1
                return count

            senders = [asyncio.create_task(send()) for _ in range(8)]
            for number in range(40):
                await self._plane.load(configuration(self._servers, number))
                await asyncio.sleep(0.1)
            is_done.set()
            counts = await asyncio.gather(*senders)
        assert not failed, f"{failed.total()} of {sum(counts)} RPCs failed: {failed}"

    async def stream_without_timeout(self) -> None:
        """A stream on a route without a timeout outlives gRPC's default of 15 s."""
        async with self._channel("no_timeout") as channel:
            watch = channel.unary_stream("/shop.Orders/Watch")
            call = watch(str(_LONG_STREAM_S).encode())
            got = [message async for message in call]
        assert len(got) == _LONG_STREAM_S, f"{len(got)} of {_LONG_STREAM_S} messages"

    async def _count(self, name: str, count: int, **options: Untyped) -> Counter[str]:
        """The number of RPCs that each backend answered."""
        async with self._channel(name) as channel:
            get = channel.unary_unary(_GET)
            replies = [await get(b"", timeout=_RPC_TIMEOUT_S, **options) for _ in range(count)]
        return Counter(json.loads(reply)["backend"] for reply in replies)

    async def _get(self, name: str) -> Document:
        """The answer to an RPC without a timeout of its own."""
        async with self._channel(name) as channel:
            reply: Document = json.loads(await channel.unary_unary(_GET)(b""))
        return reply

    async def _code(self, name: str, method: str, request: bytes = b"") -> grpc.StatusCode:
        async with self._channel(name) as channel:
            code: grpc.StatusCode = await channel.unary_unary(method)(request).code()
        return code

    def _channel(self, name: str) -> Untyped:
        return make_channel(self._stack, name)


CASES: Final = tuple(name for name in vars(Cases) if not name.startswith("_"))


def make_channel(stack: Untyped, name: str) -> Untyped:
    """A channel to a service, with the security that Istio configures."""
    fallback = grpc.experimental.insecure_channel_credentials()
    credentials = stack.xds_channel_credentials(fallback)
    return stack.aio.secure_channel(target(name), credentials)


def configuration(servers: Mapping[str, Backend], number: int = 0) -> list[Document]:
    """All documents of the mesh; those of the service `changes` depend on the number."""
    both = [endpoint(servers["v1a"]), endpoint(servers["v1b"]), endpoint(servers["v2"], "v2")]
    near = endpoint(servers["v1a"], locality=f"{REGION}/a")
    far = endpoint(servers["v2"], "v2", locality="east/a")
    # A port that refuses connections: no program listens on the port of discard.
    dead = endpoint(9, locality=f"{REGION}/a")
    all_v1 = {"v1": 100}
    abort = {"abort": {"grpcStatus": "UNAVAILABLE", "percentage": {"value": 100}}}
    delay = {"delay": {"fixedDelay": f"{_FAULT_DELAY_S}s", "percentage": {"value": 100}}}
    alice = [{"headers": {"x-user": {"exact": "alice"}}}]
    retry = {"attempts": 2, "retryOn": "unavailable"}
    routes = {
        "canary": [route_to("canary", {"v1": 75, "v2": 25})],
        "header": [
            route_to("header", {"v2": 100}, match=alice),
            route_to("header", all_v1),
        ],
        "subset": [route_to("subset", all_v1)],
        "timeout": [route_to("timeout", all_v1, timeout=f"{_ROUTE_TIMEOUT_S}s")],
        "retries": [route_to("retries", all_v1, retries=retry)],
        "fault_abort": [route_to("fault_abort", all_v1, fault=abort)],
        "fault_delay": [route_to("fault_delay", all_v1, fault=delay)],
        "outlier_detection": [route_to("outlier_detection", all_v1)],
        "no_timeout": [route_to("no_timeout", all_v1)],
        "changes": [_changing_route(number)],
    }
    policies: dict[str, dict[str, object]] = {
        "circuit_breaker": {"connectionPool": {"http": {"http2MaxRequests": 5}}},
        "outlier_detection": {"outlierDetection": _OUTLIERS},
        "hash_of_header": {
            "loadBalancer": {"consistentHash": {"httpHeaderName": "x-user"}},
        },
        "locality_preferred": {"outlierDetection": _OUTLIERS},
        "locality_failover": {"outlierDetection": _OUTLIERS},
        "mutual_tls": {"tls": {"mode": "ISTIO_MUTUAL"}},
        "other_identity": {"tls": {"mode": "ISTIO_MUTUAL"}},
    }
    secure = endpoint(servers["secure"])
    endpoints = {
        "circuit_breaker": [endpoint(servers["v1a"])],
        "locality_preferred": [near, far],
        "locality_failover": [dead, far],
        "mutual_tls": [secure],
        "other_identity": [secure],
        "changes": both if number % 3 else both[1:],
    }
    names = {
        "mutual_tls": [IDENTITY],
        "other_identity": ["spiffe://cluster.local/ns/shop/sa/another"],
    }
    documents = []
    for name in sorted({*routes, *policies, *endpoints}):
        sans = {"subjectAltNames": names[name]} if name in names else {}
        documents.append(service_entry(name, endpoints.get(name, both), **sans))
        documents.append(destination_rule(name, **policies.get(name, {})))
        if name in routes:
            documents.append(virtual_service(name, *routes[name]))
    return documents


def _changing_route(number: int) -> Document:
    weights = ({"v1": 100}, {"v2": 100}, {"v1": 50, "v2": 50}, {"v1": 10, "v2": 90})
    return route_to("changes", weights[number % len(weights)], timeout=f"{10 + number % 2}s")


async def one_stream_for_many_targets(stack: Untyped, plane: Istiod) -> None:
    """Istio's agent accepts one ADS stream of a process, on a unix socket."""
    async with AsyncExitStack() as channels:
        for name in ("canary", "header", "subset", "retries", "timeout"):
            channel = await channels.enter_async_context(make_channel(stack, name))
            await channel.unary_unary(_GET)(b"", timeout=_RPC_TIMEOUT_S)
        count = await plane.client_count()
    assert count == 1, f"{count} streams"


async def many_services(stack: Untyped) -> None:
    """Channels to 50 services of 1,000."""
    async with AsyncExitStack() as channels:
        for number in range(0, _MANY, _MANY // 50):
            channel = await channels.enter_async_context(make_channel(stack, f"s{number}"))
            await channel.unary_unary(_GET)(b"", timeout=_RPC_TIMEOUT_S)


def many_documents(server: Backend) -> list[Document]:
    return [service_entry(f"s{number}", [endpoint(server)]) for number in range(_MANY)]


class Bootstrap:
    """The file of the bootstrap, for channels that are made from now on."""

    def __init__(self, directory: Path, features: Sequence[str]) -> None:
        self._directory = directory
        self._features = features

    def use(self, address: str) -> None:
        """Connect new channels to this control plane."""
        path = self._directory / "bootstrap.json"
        path.write_text(json.dumps(bootstrap(address, self._directory, self._features)))
        os.environ["GRPC_XDS_BOOTSTRAP"] = str(path)


async def run(stack: Untyped, binary: str, features: Sequence[str], only: Sequence[str]) -> None:
    async with AsyncExitStack() as world:
        directory = Path(world.enter_context(tempfile.TemporaryDirectory()))
        servers = await world.enter_async_context(backends(("v1a", "v1b", "v2")))
        servers |= await world.enter_async_context(
            backends(("secure",), make_certificates(directory))
        )
        documents = configuration(servers)
        plane = await world.enter_async_context(istiod(binary, directory, documents))
        file = Bootstrap(directory, features)
        file.use(plane.address)
        cases = Cases(stack, plane, servers)
        for name in CASES:
            if not only or name in only:
                await _run_case(name, getattr(cases, name)())
        if not only or "one_stream_for_many_targets" in only:
            socket = f"unix:{directory / 'XDS'}"
            async with istiod(binary, directory, documents, socket) as plane:
                file.use(plane.address)
                await _run_case(
                    "one_stream_for_many_targets", one_stream_for_many_targets(stack, plane)
                )
        if not only or "many_services" in only:
            async with istiod(binary, directory, many_documents(servers["v1a"])) as plane:
                file.use(plane.address)
                await _run_case("many_services", many_services(stack))


async def _run_case(name: str, case: Untyped) -> None:
    reason = None
    try:
        async with asyncio.timeout(_CASE_TIMEOUT_S):
            await case
    except grpc.RpcError as error:
        reason = f"{error.code().name}: {error.details()}"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    print(json.dumps([name.replace("_", " "), reason]), flush=True)


def main(stack: str, binary: str, variant: str, *only: str) -> None:
    features = ("delta",) if variant == "delta" else ()
    asyncio.run(run(load_stack(stack), binary, features, only))


if __name__ == "__main__":
    main(*sys.argv[1:])
