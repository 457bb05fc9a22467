"""Client for gRPC's interop test cases of interop-test-descriptions.md.

    python -m tools.peers.clients.interop <stack> <generated code> <target> [<root certificate>]

Prints a line of JSON per case: its name, and its error or null.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from tools.peers.clients.stacks import Untyped, load_modules, load_stack

_CASE_TIMEOUT_S: Final = 20.0
_SERVICE: Final = "/grpc.testing.TestService"
_REQUEST_SIZES: Final = (27_182, 8, 1_828, 45_904)
_RESPONSE_SIZES: Final = (31_415, 9, 2_653, 58_979)
_LARGE_REQUEST: Final = 271_828
_LARGE_RESPONSE: Final = 314_159
# The description has 1000, which is half a gigabyte.
_CONCURRENT: Final = 100
_METADATA: Final = (
    ("x-grpc-test-echo-initial", "test_initial_metadata_value"),
    ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"),
)
_SPECIAL_MESSAGE: Final = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


class InteropClient:
    """The cases, each a method with its name in the description."""

    def __init__(self, channel: Untyped, messages: Untyped) -> None:
        self._m = messages
        m = messages

        def method(kind: str, path: str, request: Untyped, response: Untyped) -> Untyped:
            return getattr(channel, kind)(
                path,
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )

        output = (m.StreamingOutputCallRequest, m.StreamingOutputCallResponse)
        inputs = (m.StreamingInputCallRequest, m.StreamingInputCallResponse)
        unary = f"{_SERVICE}/UnaryCall"
        self._empty = method("unary_unary", f"{_SERVICE}/EmptyCall", m.Empty, m.Empty)
        self._unary = method("unary_unary", unary, m.SimpleRequest, m.SimpleResponse)
        self._input = method("stream_unary", f"{_SERVICE}/StreamingInputCall", *inputs)
        self._output = method("unary_stream", f"{_SERVICE}/StreamingOutputCall", *output)
        self._duplex = method("stream_stream", f"{_SERVICE}/FullDuplexCall", *output)
        missing = f"{_SERVICE}/UnimplementedCall"
        self._no_method = method("unary_unary", missing, m.Empty, m.Empty)
        missing = "/grpc.testing.UnimplementedService/UnimplementedCall"
        self._no_service = method("unary_unary", missing, m.Empty, m.Empty)

    def _payload(self, size: int) -> Untyped:
        return self._m.Payload(body=bytes(size))

    def _large(self) -> Untyped:
        payload = self._payload(_LARGE_REQUEST)
        return self._m.SimpleRequest(response_size=_LARGE_RESPONSE, payload=payload)

    def _exchange(self, request: int, response: int) -> Untyped:
        parameters = [self._m.ResponseParameters(size=response)]
        return self._m.StreamingOutputCallRequest(
            response_parameters=parameters, payload=self._payload(request)
        )

    async def empty_unary(self) -> None:
        assert await self._empty(self._m.Empty()) == self._m.Empty()

    async def large_unary(self) -> None:
        reply = await self._unary(self._large())
        assert reply.payload.body == bytes(_LARGE_RESPONSE)

    async def concurrent_large_unary(self) -> None:
        replies = await asyncio.gather(*(self._unary(self._large()) for _ in range(_CONCURRENT)))
        assert all(reply.payload.body == bytes(_LARGE_RESPONSE) for reply in replies)

    async def client_streaming(self) -> None:
        call = self._input()
        for size in _REQUEST_SIZES:
            await call.write(self._m.StreamingInputCallRequest(payload=self._payload(size)))
        await call.done_writing()
        assert (await call).aggregated_payload_size == sum(_REQUEST_SIZES)

    async def server_streaming(self) -> None:
        parameters = [self._m.ResponseParameters(size=size) for size in _RESPONSE_SIZES]
        call = self._output(self._m.StreamingOutputCallRequest(response_parameters=parameters))
        sizes = [len(reply.payload.body) async for reply in call]
        assert sizes == list(_RESPONSE_SIZES)

    async def ping_pong(self) -> None:
        call = self._duplex()
        for request, response in zip(_REQUEST_SIZES, _RESPONSE_SIZES, strict=True):
            await call.write(self._exchange(request, response))
            assert len((await call.read()).payload.body) == response
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        _check(await call.code(), grpc.StatusCode.OK)

    async def empty_stream(self) -> None:
        call = self._duplex()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        _check(await call.code(), grpc.StatusCode.OK)

    async def custom_metadata(self) -> None:
        unary = self._unary(self._large(), metadata=_METADATA)
        await unary
        await self._check_metadata(unary)
        duplex = self._duplex(metadata=_METADATA)
        await duplex.write(self._exchange(_LARGE_REQUEST, _LARGE_RESPONSE))
        await duplex.done_writing()
        while await duplex.read() is not grpc.aio.EOF:
            pass
        await self._check_metadata(duplex)

    async def _check_metadata(self, call: Untyped) -> None:
        assert _METADATA[0] in tuple(await call.initial_metadata())
        assert _METADATA[1] in tuple(await call.trailing_metadata())

    async def status_code_and_message(self) -> None:
        status = self._m.EchoStatus(code=2, message="test status message")
        await self._check_status(status)

    async def special_status_message(self) -> None:
        await self._check_status(self._m.EchoStatus(code=2, message=_SPECIAL_MESSAGE), unary=True)

    async def _check_status(self, status: Untyped, *, unary: bool = False) -> None:
        call = self._unary(self._m.SimpleRequest(response_status=status))
        await _expect(call, grpc.StatusCode.UNKNOWN, status.message)
        if not unary:
            duplex = self._duplex()
            await duplex.write(self._m.StreamingOutputCallRequest(response_status=status))
            await duplex.done_writing()
            await _expect(duplex.read(), grpc.StatusCode.UNKNOWN, status.message)

    async def unimplemented_method(self) -> None:
        await _expect(self._no_method(self._m.Empty()), grpc.StatusCode.UNIMPLEMENTED)

    async def unimplemented_service(self) -> None:
        await _expect(self._no_service(self._m.Empty()), grpc.StatusCode.UNIMPLEMENTED)

    async def cancel_after_begin(self) -> None:
        call = self._input()
        call.cancel()
        _check(await call.code(), grpc.StatusCode.CANCELLED)

    async def cancel_after_first_response(self) -> None:
        call = self._duplex()
        await call.write(self._exchange(_REQUEST_SIZES[0], _RESPONSE_SIZES[0]))
        assert len((await call.read()).payload.body) == _RESPONSE_SIZES[0]
        call.cancel()
        _check(await call.code(), grpc.StatusCode.CANCELLED)

    async def timeout_on_sleeping_server(self) -> None:
        call = self._duplex(timeout=0.001)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(self._exchange(_REQUEST_SIZES[0], _RESPONSE_SIZES[0]))
        _check(await call.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


async def _expect(awaitable: Untyped, code: grpc.StatusCode, details: str | None = None) -> None:
    found, text = grpc.StatusCode.OK, ""
    try:
        await awaitable
    except grpc.aio.AioRpcError as error:
        found, text = error.code(), error.details() or ""
    _check(found, code)
    assert details is None or text == details, f"{text!r}, wanted {details!r}"


def _check(code: grpc.StatusCode, wanted: grpc.StatusCode) -> None:
    assert code is wanted, f"{code.name}, wanted {wanted.name}"


CASES: Final = tuple(name for name in vars(InteropClient) if not name.startswith("_"))


def open_channel(stack: Untyped, target: str, roots: Path | None) -> Untyped:
    if roots is None:
        return stack.aio.insecure_channel(target)
    return stack.aio.secure_channel(target, grpc.ssl_channel_credentials(roots.read_bytes()))


async def run(stack: Untyped, messages: Untyped, target: str, roots: Path | None) -> None:
    async with open_channel(stack, target, roots) as channel:
        client = InteropClient(channel, messages)
        for case in CASES:
            print(json.dumps([case, await _outcome(getattr(client, case)())]), flush=True)


async def _outcome(case: Untyped) -> str | None:
    try:
        async with asyncio.timeout(_CASE_TIMEOUT_S):
            await case
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def main(stack: str, directory: str, target: str, roots: str | None = None) -> None:
    (messages,) = load_modules(Path(directory), "interop_pb2")
    asyncio.run(run(load_stack(stack), messages, target, Path(roots) if roots else None))


if __name__ == "__main__":
    main(*sys.argv[1:])
