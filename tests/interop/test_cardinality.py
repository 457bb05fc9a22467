"""A call with one response that gets none, or two, ends with UNIMPLEMENTED.

"Response cardinality violation (method requires exactly one response but server sent some other
number of responses)" - statuscodes.md

grpcio returns None if there is no response, and waits for its deadline if there are two.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import grpc
import grpc.aio
import pytest

import proxyless
import proxyless.aio
from tests.interop.drop_in import Untyped
from tests.worlds.transports import PATIENCE_S

KINDS = ["unary_unary", "stream_unary"]
# By the number of responses.
DETAILS = {
    0: "server ended the call with OK but sent no message",
    2: "server sent more than one message in a call that has one",
}
WRONG_NUMBERS = [0, 2]
# The deadline of a call that waits for it.
SHORT_S = 0.3


class Responses(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Methods named after the number of responses that they send."""

    def service(self, handler_call_details: Untyped) -> Untyped:
        number = int(handler_call_details.method.rpartition("/")[2])

        def respond(requests: Iterator[bytes], _: object) -> Iterator[bytes]:
            list(requests)
            yield from (b"response",) * number

        return grpc.stream_stream_rpc_method_handler(respond)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool)
    server.add_generic_rpc_handlers((Responses(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def call_sync(stack: Untyped, target: str, kind: str, number: int, limit_s: float) -> Untyped:
    with stack.insecure_channel(target) as channel:
        request = b"" if kind == "unary_unary" else iter([b""])
        return getattr(channel, kind)(f"/responses/{number}")(request, timeout=limit_s)


async def call_aio(stack: Untyped, target: str, kind: str, number: int, limit_s: float) -> Untyped:
    async with AsyncExitStack() as exits:
        channel = await exits.enter_async_context(stack.insecure_channel(target))
        request = b"" if kind == "unary_unary" else iter([b""])
        return await getattr(channel, kind)(f"/responses/{number}")(request, timeout=limit_s)


@pytest.mark.parametrize("number", WRONG_NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
def test_blocking_call_is_unimplemented_when_number_of_responses_is_wrong(
    target: str, kind: str, number: int
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call_sync(proxyless, target, kind, number, PATIENCE_S)
    error: Untyped = raised.value
    assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, DETAILS[number])


@pytest.mark.parametrize("number", WRONG_NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
async def test_aio_call_is_unimplemented_when_number_of_responses_is_wrong(
    target: str, kind: str, number: int
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call_aio(proxyless.aio, target, kind, number, PATIENCE_S)
    error = raised.value
    assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, DETAILS[number])


@pytest.mark.parametrize("kind", KINDS)
async def test_grpcio_returns_none_when_there_is_no_response(target: str, kind: str) -> None:
    assert call_sync(grpc, target, kind, 0, PATIENCE_S) is None
    assert await call_aio(grpc.aio, target, kind, 0, PATIENCE_S) is None


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
@pytest.mark.parametrize("kind", KINDS)
async def test_grpcio_waits_for_its_deadline_when_there_are_two_responses(
    target: str, kind: str
) -> None:
    with pytest.raises(grpc.RpcError) as blocking:
        call_sync(grpc, target, kind, 2, SHORT_S)
    with pytest.raises(grpc.aio.AioRpcError) as awaited:
        await call_aio(grpc.aio, target, kind, 2, SHORT_S)
    errors: list[Untyped] = [blocking.value, awaited.value]
    assert [error.code() for error in errors] == [grpc.StatusCode.DEADLINE_EXCEEDED] * 2
