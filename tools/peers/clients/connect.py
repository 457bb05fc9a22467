"""Client under test for Connect's conformance runner.

It reads `ClientCompatRequest` messages from stdin, each after its length in four bytes, makes the
RPC that each describes, and writes a `ClientCompatResponse` in the same form to stdout.

    python -m tools.peers.clients.connect <proxyless|grpcio> <directory of the generated code>
"""

from __future__ import annotations

import asyncio
import struct
import sys
from base64 import b64decode, b64encode
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from tools.peers.clients.stacks import Untyped, load_modules, load_stack

# The maximum number of RPCs in flight.
_PARALLEL: Final = 8
# The longest case takes a second.
_CASE_TIMEOUT_S: Final = 10.0
_LENGTH: Final = struct.Struct(">I")
_DETAILS_KEY: Final = "grpc-status-details-bin"


class ConformanceClient:
    """Makes the RPCs of test cases with one stack."""

    def __init__(self, stack: Untyped, protos: list[Untyped]) -> None:
        self._stack = stack
        self._compat, self._service, self._config = protos

    async def run(self, request: Untyped) -> Untyped:
        """The response to a test case, even if it raises."""
        response = self._compat.ClientCompatResponse(test_name=request.test_name)
        try:
            async with asyncio.timeout(_CASE_TIMEOUT_S), AsyncExitStack() as exits:
                channel = await exits.enter_async_context(self._open_channel(request))
                case = _Case(request, self._compat, self._service)
                response.response.CopyFrom(await case.run(self._start_call(channel, request)))
        except TimeoutError:
            response.error.message = f"the call has not ended after {_CASE_TIMEOUT_S:g} s"
        except Exception as error:
            response.error.message = f"{type(error).__name__}: {error}"
        return response

    def _open_channel(self, request: Untyped) -> Untyped:
        target = f"{request.host}:{request.port}"
        limit = request.message_receive_limit
        # A connection for each case, so that cases do not affect each other.
        options = [("grpc.use_local_subchannel_pool", 1)]
        if limit:
            options.append(("grpc.max_receive_message_length", limit))
        if not request.server_tls_cert:
            return self._stack.aio.insecure_channel(target, options=options)
        client = request.client_tls_creds
        credentials = grpc.ssl_channel_credentials(
            request.server_tls_cert, client.key or None, client.cert or None
        )
        return self._stack.aio.secure_channel(target, credentials, options=options)

    def _start_call(self, channel: Untyped, request: Untyped) -> Untyped:
        kind = {
            self._config.STREAM_TYPE_UNARY: channel.unary_unary,
            self._config.STREAM_TYPE_CLIENT_STREAM: channel.stream_unary,
            self._config.STREAM_TYPE_SERVER_STREAM: channel.unary_stream,
        }.get(request.stream_type, channel.stream_stream)
        method = kind(
            f"/{request.service}/{request.method}",
            response_deserializer=getattr(self._service, f"{request.method}Response").FromString,
        )
        compression = grpc.Compression.NoCompression
        if request.compression == self._config.COMPRESSION_GZIP:
            compression = grpc.Compression.Gzip
        elif request.compression == self._config.COMPRESSION_DEFLATE:
            compression = grpc.Compression.Deflate
        arguments = {
            "metadata": _to_metadata(request.request_headers),
            "timeout": request.timeout_ms / 1000 if request.HasField("timeout_ms") else None,
            "compression": compression,
        }
        if kind in {channel.unary_unary, channel.unary_stream}:
            return method(request.request_messages[0].value, **arguments)
        return method(**arguments)


class _Case:
    """One RPC, and its report."""

    def __init__(self, request: Untyped, compat: Untyped, service: Untyped) -> None:
        self._request = request
        self._service = service
        self._result = compat.ClientResponseResult()
        self._received = 0

    async def run(self, call: Untyped) -> Untyped:
        try:
            await self._exchange(call)
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            self._result.error.code = grpc.StatusCode.CANCELLED.value[0]
            self._result.error.message = await call.details()
        except grpc.aio.AioRpcError as error:
            self._report_error(error)
        with suppress(grpc.RpcError, asyncio.CancelledError):
            head, tail = await call.initial_metadata(), await call.trailing_metadata()
            _add_headers(self._result.response_headers, head)
            _add_headers(self._result.response_trailers, tail)
        return self._result

    async def _exchange(self, call: Untyped) -> None:
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            await self._cancel_after_sending(call)
            self._add_payload(await call)
        elif isinstance(call, grpc.aio.StreamUnaryCall):
            await self._send_all(call)
            self._add_payload(await call)
        else:
            if isinstance(call, grpc.aio.UnaryStreamCall):
                await self._cancel_after_sending(call)
            else:
                await self._send_all(call)
            while await self._receive(call):
                pass

    async def _send_all(self, call: Untyped) -> None:
        """Send the requests; after each of a full-duplex stream, read a response."""
        is_full_duplex = self._request.stream_type == self._full_duplex
        unsent = len(self._request.request_messages)
        try:
            for message in self._request.request_messages:
                await asyncio.sleep(self._request.request_delay_ms / 1000)
                await call.write(message.value)
                unsent -= 1
                if is_full_duplex and not await self._receive(call):
                    break
            if self._cancels("before_close_send"):
                call.cancel()
                return
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # Reading returns the error.
            pass
        finally:
            self._result.num_unsent_requests = unsent
        await self._cancel_after_sending(call)

    @property
    def _full_duplex(self) -> int:
        field = self._request.DESCRIPTOR.fields_by_name["stream_type"]
        number: int = field.enum_type.values_by_name["STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM"].number
        return number

    def _cancels(self, timing: str) -> bool:
        if not self._request.HasField("cancel"):
            return False
        found: str | None = self._request.cancel.WhichOneof("cancel_timing")
        return found == timing

    async def _cancel_after_sending(self, call: Untyped) -> None:
        cancel = self._request.cancel
        if not self._request.HasField("cancel"):
            return
        if cancel.WhichOneof("cancel_timing") in {None, "after_close_send_ms"}:
            await asyncio.sleep(cancel.after_close_send_ms / 1000)
            call.cancel()

    async def _receive(self, call: Untyped) -> bool:
        response = await call.read()
        if response is grpc.aio.EOF:
            return False
        self._add_payload(response)
        self._received += 1
        cancel = self._request.cancel
        if self._cancels("after_num_responses") and self._received == cancel.after_num_responses:
            call.cancel()
        return True

    def _add_payload(self, response: Untyped) -> None:
        # grpcio returns None for a call without a response.
        if response is not None and "payload" in response.DESCRIPTOR.fields_by_name:
            self._result.payloads.append(response.payload)

    def _report_error(self, error: grpc.aio.AioRpcError) -> None:
        for key, value in error.trailing_metadata() or ():
            if key == _DETAILS_KEY:
                # google.rpc.Status has the fields of this message.
                details = self._service.Error.FromString(value).details
                self._result.error.details.extend(details)
        self._result.error.code = error.code().value[0]
        self._result.error.message = error.details() or ""


def _to_metadata(headers: Untyped) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (name, b64decode(value + "==") if name.endswith("-bin") else value)
        for name, values in ((header.name.lower(), header.value) for header in headers)
        for value in values
    )


def _add_headers(headers: Untyped, metadata: Untyped) -> None:
    values: dict[str, list[str]] = {}
    for key, value in metadata or ():
        text = b64encode(value).decode() if isinstance(value, bytes) else value
        values.setdefault(key, []).append(text)
    for name, texts in values.items():
        headers.add(name=name, value=texts)


async def main(stack: str, directory: str) -> None:
    names = ("client_compat", "service", "config")
    modules = [f"connectrpc.conformance.v1.{name}_pb2" for name in names]
    protos = load_modules(Path(directory), *modules)
    client = ConformanceClient(load_stack(stack), protos)
    places = asyncio.Semaphore(_PARALLEL)

    async def run(message: bytes) -> None:
        request = protos[0].ClientCompatRequest.FromString(message)
        async with places:
            response = (await client.run(request)).SerializeToString()
        sys.stdout.buffer.write(_LENGTH.pack(len(response)) + response)
        sys.stdout.buffer.flush()

    async with asyncio.TaskGroup() as tasks:
        while message := await asyncio.to_thread(_read_message):
            tasks.create_task(run(message))


def _read_message() -> bytes:
    """The next message, or nothing at the end of the input."""
    length = sys.stdin.buffer.read(_LENGTH.size)
    return sys.stdin.buffer.read(*_LENGTH.unpack(length)) if length else b""


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
