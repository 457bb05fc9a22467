"""Details of RPCs that succeed, and methods that are not ASCII, on our channels and grpcio's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

import proxyless
import proxyless.aio
from tests.worlds.transports import PATIENCE_S

Untyped = Any


def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
    context.set_details("fine")
    return request


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != "/test/Fine":
            return None
        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize("aio", [grpc.aio, proxyless.aio], ids=["grpcio", "proxyless"])
async def test_details_of_a_successful_rpc_are_empty(aio: Untyped, target: str) -> None:
    async with aio.insecure_channel(target) as channel:
        call = channel.unary_unary("/test/Fine")(b"", timeout=PATIENCE_S)
        await call
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")


@pytest.mark.parametrize("stack", [grpc, proxyless], ids=["grpcio", "proxyless"])
def test_details_of_a_successful_blocking_rpc_are_empty(stack: Untyped, target: str) -> None:
    with stack.insecure_channel(target) as channel:
        _, call = channel.unary_unary("/test/Fine").with_call(b"", timeout=PATIENCE_S)
        assert (call.code(), call.details()) == (grpc.StatusCode.OK, "")


async def test_method_that_is_not_ascii_raises_where_grpcio_sends_it(target: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary("/test/é")(b"", timeout=PATIENCE_S)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with proxyless.aio.insecure_channel(target) as channel:
        with pytest.raises(ValueError, match="wanted printable ASCII"):
            channel.unary_unary("/test/é")(b"", timeout=PATIENCE_S)


def test_blocking_method_that_is_not_ascii_raises_where_grpcio_sends_it(target: str) -> None:
    with grpc.insecure_channel(target) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/test/é")(b"", timeout=PATIENCE_S)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with (
        proxyless.insecure_channel(target) as channel,
        pytest.raises(ValueError, match="wanted printable ASCII"),
    ):
        channel.unary_unary("/test/é")(b"", timeout=PATIENCE_S)
