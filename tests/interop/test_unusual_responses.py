"""Responses that are not quite gRPC, or nearly too large, on our channels and on grpcio's."""

import asyncio
import signal
import struct
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import pytest
from h2.connection import H2Connection

import proxyless.aio
from tests.interop.drop_in import Untyped
from tests.interop.h2_server import Answer, H2Server, answer_with
from tests.worlds.transports import PATIENCE_S, raw_server

MESSAGE: Final = b"\0\0\0\0\4good"
HEAD: Final = ((":status", "200"), ("content-type", "application/grpc"))
OK: Final = (("grpc-status", "0"),)
# The code of a GOAWAY, above all those that grpcio handles.
HTTP_1_1_REQUIRED: Final = 13

CLIENT_OF_GRPCIO: Final = """
import sys, time, grpc
channel = grpc.insecure_channel(sys.argv[1])
channel.unary_unary("/a.B/C")(b"")
time.sleep(float(sys.argv[2]))
"""


def answer_after_early_hints(http: H2Connection, stream_id: int) -> None:
    http.send_headers(stream_id, [(":status", "103"), ("link", "</style.css>")])
    answer_with(*HEAD, body=MESSAGE, trailers=OK)(http, stream_id)


def answer_and_go_away(http: H2Connection, stream_id: int) -> None:
    answer_with(*HEAD, body=MESSAGE, trailers=OK)(http, stream_id)
    http.close_connection(HTTP_1_1_REQUIRED)


async def call(stack: Untyped, answer: Answer) -> tuple[object, str]:
    """The response, or the code and the details of the error."""
    async with (
        raw_server(H2Server(answer)) as address,
        stack.insecure_channel(str(address)) as channel,
    ):
        rpc = channel.unary_unary("/a.B/C")(b"", timeout=PATIENCE_S)
        try:
            return await rpc, repr(list(await rpc.initial_metadata()))
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())


@dataclass(frozen=True)
class Row:
    """An answer, and the result and a part of the text on both stacks."""

    answer: Answer
    grpcio: tuple[object, str]
    proxyless: tuple[object, str]


ROWS: Final = {
    "content type": Row(
        answer_with(HEAD[0], ("content-type", "application/json"), body=MESSAGE, trailers=OK),
        (b"good", "[]"),
        (grpc.StatusCode.UNKNOWN, "content-type 'application/json', not gRPC"),
    ),
    "informational": Row(
        answer_after_early_hints,
        (grpc.StatusCode.UNKNOWN, "Received http2 header with status: 103"),
        (b"good", "[]"),
    ),
    "base64": Row(
        answer_with(*HEAD, ("x-bin", "!!!"), ("y-bin", "AA"), body=MESSAGE, trailers=OK),
        (grpc.StatusCode.INTERNAL, "illegal base64"),
        (b"good", r"[('y-bin', b'\x00')]"),
    ),
    "status": Row(
        answer_with(*HEAD, body=MESSAGE, trailers=(("grpc-status", "abc"), ("grpc-message", "m"))),
        (grpc.StatusCode.INTERNAL, "Error parsing 'grpc-status' metadata"),
        (grpc.StatusCode.UNKNOWN, "peer sent grpc-status 'abc': m"),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_unusual_response_is_handled_otherwise_by_grpcio(row: Row) -> None:
    theirs, ours = await call(grpc.aio, row.answer), await call(proxyless.aio, row.answer)
    assert theirs[0] == row.grpcio[0]
    assert row.grpcio[1] in theirs[1]
    assert ours[0] == row.proxyless[0]
    assert row.proxyless[1] in ours[1]


async def test_unknown_code_of_goaway_aborts_the_process_of_grpcio() -> None:
    server = H2Server(answer_and_go_away)
    async with raw_server(server) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLIENT_OF_GRPCIO, str(address), str(PATIENCE_S)),
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == -signal.SIGABRT
        async with proxyless.aio.insecure_channel(str(address)) as channel:
            for _ in range(2):
                assert await channel.unary_unary("/a.B/C")(b"") == b"good"
    assert server.requests == 3


# Size of response metadata


class Trailers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Sends as many bytes of trailing metadata as the request says."""

    def service(self, handler_call_details: Untyped) -> Untyped:
        async def answer(request: bytes, context: Untyped) -> bytes:
            (size,) = struct.unpack("I", request)
            context.set_trailing_metadata((("x-large", "v" * size),))
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def target() -> AsyncIterator[str]:
    server = grpc.aio.server(options=[("grpc.absolute_max_metadata_size", 1 << 20)])
    server.add_generic_rpc_handlers((Trailers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def count_accepted(stack: Untyped, target: str, size: int, *options: Untyped) -> int:
    """How many of ten RPCs with this many bytes of trailing metadata succeed."""
    codes = []
    async with stack.insecure_channel(target, options=options) as channel:
        for _ in range(10):
            rpc = channel.unary_unary("/a.B/C")(struct.pack("I", size), timeout=PATIENCE_S)
            codes.append(await rpc.code())
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    return codes.count(grpc.StatusCode.OK)


@pytest.mark.parametrize(
    ("size", "options", "accepted"),
    [
        (7_000, [], 10),
        (17_000, [], 0),
        (30_000, [("grpc.absolute_max_metadata_size", 40_000)], 10),
        (41_000, [("grpc.absolute_max_metadata_size", 40_000)], 0),
        (21_000, [("grpc.absolute_max_metadata_size", 20_000), ("grpc.max_metadata_size", 1)], 0),
        (39_000, [("grpc.max_metadata_size", 40_000)], 10),
    ],
)
async def test_response_metadata_is_accepted_up_to_the_limit(
    target: str, size: int, options: list[tuple[str, int]], accepted: int
) -> None:
    for stack in (grpc.aio, proxyless.aio):
        assert await count_accepted(stack, target, size, *options) == accepted


@pytest.mark.parametrize(
    ("size", "options"), [(16_000, []), (39_000, [("grpc.absolute_max_metadata_size", 40_000)])]
)
async def test_grpcio_rejects_at_random_below_the_limit(
    target: str, size: int, options: list[tuple[str, int]]
) -> None:
    assert await count_accepted(grpc.aio, target, size, *options) < 10
    assert await count_accepted(proxyless.aio, target, size, *options) == 10
