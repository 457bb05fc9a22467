"""`proxyless call TARGET METHOD`: sends one RPC through the mesh.

The request is JSON, for which the descriptors come from `--protoset` files or from the reflection
service of the server, or it is given as bytes. Responses go to standard output; everything else
goes to standard error: with `-v` metadata, status and the address of the backend, and on failure
the explanation.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless import call_route
from proxyless.base.texts import escape_json, one_line, quote
from proxyless.cli.arguments import add_header_option, add_timeout_option, parse_method
from proxyless.cli.dialing import add_channel_options, check_channel_options, open_channel
from proxyless.cli.message_schemas import SchemaError, find_method, read_protosets
from proxyless.cli.output import JSON, describe_error, fail, print_lines
from proxyless.observe import explain_error, to_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence

    from proxyless import CallRoute
    from proxyless.cli.message_schemas import MethodSchema
    from proxyless.front import AioChannel

TIMEOUT_S: Final = 10.0
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
# Added to the number of the status code.
STATUS_EXIT_CODE: Final = 64

HEX, BASE64, RAW = "hex", "base64", "raw"

EXIT_CODES: Final = {
    0: "the status of the RPC is OK",
    1: "the request or a file is bad, or there are no descriptors that match",
    2: "usage error, or a missing extra",
    "64 + N": "the RPC, or that of reflection, failed with status code N: 78 is UNAVAILABLE",
}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Send one RPC, unary or with streamed responses, and print the responses."
    parser.add_argument("target", metavar="TARGET", help="target of the channel: xds:///name")
    parser.add_argument(
        "method", metavar="METHOD", type=parse_method, help="package.Service/Method"
    )
    data = parser.add_mutually_exclusive_group()
    data.add_argument(
        "-d",
        "--data",
        metavar="JSON",
        help="request in JSON; - is standard input, @FILE a file (default: {})",
    )
    data.add_argument(
        "--data-file", metavar="FILE", type=Path, help="file of the serialized request"
    )
    data.add_argument("--data-hex", metavar="HEX", help="serialized request in hex")
    data.add_argument("--data-base64", metavar="TEXT", help="serialized request in base64")
    parser.add_argument(
        "--protoset",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="descriptors of protoc; may be repeated (default: reflection of the server)",
    )
    add_header_option(parser)
    add_channel_options(parser)
    add_timeout_option(parser, TIMEOUT_S, "deadline of the RPC and of reflection together")
    parser.add_argument(
        "-o",
        "--output",
        choices=(JSON, HEX, BASE64, RAW),
        help="format of responses (default: json, or hex if the request is given as bytes)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also print response metadata, the status, and where the RPC went",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Send the RPC; returns 0, 64 plus its status code, or 1 if it could not be sent."""
    check_channel_options(parsed)
    _choose_output(parsed)
    if parsed.output == RAW and sys.stdout.isatty():
        parsed.parser.error(
            "argument -o: raw bytes may control the terminal, wanted a file or pipe"
        )
    try:
        request = _read_request(parsed)
        return asyncio.run(_Rpc(parsed).send(request))
    except (SchemaError, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return fail("call", [describe_error(error)])


def _choose_output(parsed: argparse.Namespace) -> None:
    is_json = not _has_bytes(parsed)
    if parsed.output is None:
        parsed.output = JSON if is_json else HEX
    if parsed.protoset and not is_json and parsed.output != JSON:
        parsed.parser.error("argument --protoset: has no effect, as nothing is in JSON")


def _has_bytes(parsed: argparse.Namespace) -> bool:
    return any(each is not None for each in (parsed.data_file, parsed.data_hex, parsed.data_base64))


def _read_request(parsed: argparse.Namespace) -> str | bytes:
    """The request: JSON, or the serialized message."""
    if parsed.data_file is not None:
        return _read_bounded(parsed.data_file)
    try:
        if parsed.data_hex is not None:
            return bytes.fromhex(parsed.data_hex)
        if parsed.data_base64 is not None:
            return base64.b64decode(parsed.data_base64, validate=True)
    except ValueError as error:
        raise ValueError(f"request is not valid: {error}") from None
    text: str = "{}" if parsed.data is None else parsed.data
    if text == "-":
        return sys.stdin.read(REQUEST_BYTES_MAX)
    return _read_bounded(Path(text[1:])).decode() if text.startswith("@") else text


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(REQUEST_BYTES_MAX + 1)
    if len(content) > REQUEST_BYTES_MAX:
        raise ValueError(f"{path}: has more than {REQUEST_BYTES_MAX} bytes")
    return content


def to_call_metadata(headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str | bytes], ...]:
    """Metadata of the headers. Values of `-bin` keys are given in base64. Raises ValueError."""
    return tuple((key, _decode_binary(key, value)) for key, value in headers)


def _decode_binary(key: str, value: str) -> str | bytes:
    if not key.endswith("-bin"):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"header {key!r} is not in base64: {error}") from None


class _Rpc:
    """One run of the command."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed: Final = parsed
        self._metadata: Final = to_call_metadata(parsed.headers)
        self._start_s = 0.0

    async def send(self, request: str | bytes) -> int:
        parsed = self._parsed
        self._start_s = asyncio.get_running_loop().time()
        async with open_channel(parsed) as channel:
            schema = None
            try:
                if isinstance(request, str) or parsed.output == JSON:
                    schema = await self._find_schema(channel)
            except grpc.RpcError as error:
                return self._report_reflection(error)
            if isinstance(request, str):
                assert schema is not None, "JSON needs one"
                request = schema.encode_request(request)
            return await self._exchange(channel, schema, request)

    async def _find_schema(self, channel: AioChannel) -> MethodSchema:
        parsed = self._parsed
        if parsed.protoset:
            schema = find_method(read_protosets(parsed.protoset), parsed.method)
        else:
            # Not needed with --protoset.
            from proxyless.cli.reflection import fetch_schema  # noqa: PLC0415

            schema = await fetch_schema(channel, parsed.method, self._metadata, self._remaining_s)
        if schema.is_client_streaming:
            raise SchemaError(f"{parsed.method} takes a stream of requests, wanted one request")
        return schema

    def _remaining_s(self) -> float:
        elapsed_s = asyncio.get_running_loop().time() - self._start_s
        return max(0.0, float(self._parsed.timeout) - elapsed_s)

    async def _exchange(
        self, channel: AioChannel, schema: MethodSchema | None, request: bytes
    ) -> int:
        is_unary = schema is not None and not schema.is_server_streaming
        # Without a schema a unary response is a stream of one.
        kind = channel.unary_unary if is_unary else channel.unary_stream
        start_s = asyncio.get_running_loop().time()
        call = kind(self._parsed.method)(
            request, metadata=self._metadata, timeout=self._remaining_s()
        )
        try:
            async for response in _responses(call, is_unary=is_unary):
                self._print_response(schema, response)
        except grpc.RpcError as error:
            await self._print_exchange(call, channel, start_s)
            self._print_explanation(error)
            number: int = error.code().value[0]
            return STATUS_EXIT_CODE + number
        finally:
            call.cancel()
        await self._print_exchange(call, channel, start_s)
        return 0

    def _print_response(self, schema: MethodSchema | None, response: bytes) -> None:
        output = self._parsed.output
        if output == RAW:
            sys.stdout.buffer.write(response)
            sys.stdout.buffer.flush()
        elif output == JSON:
            assert schema is not None, "JSON needs one"
            print(escape_json(schema.decode_response(response)), flush=True)
        else:
            is_hex = output == HEX
            print(response.hex() if is_hex else base64.b64encode(response).decode(), flush=True)

    async def _print_exchange(self, call: Any, channel: AioChannel, start_s: float) -> None:  # noqa: ANN401
        if not self._parsed.verbose:
            return
        took_ms = 1000 * (asyncio.get_running_loop().time() - start_s)
        _print_metadata("header", await call.initial_metadata())
        _print_metadata("trailer", await call.trailing_metadata())
        _note(f"{(await call.code()).name} in {took_ms:.1f} ms; {describe_route(call_route(call))}")
        for route in channel.explain(self._parsed.method, self._metadata).find("route"):
            _note(route.text)

    def _print_explanation(self, error: grpc.RpcError) -> None:
        first, *others = to_text(explain_error(error)).split("\n")
        route = call_route(error)
        if route.address is not None and not self._parsed.verbose:
            # The mesh routed it: the error is the backend's, or that of the connection to it.
            others = [f"  {describe_route(route)}"]
        print_lines("\n".join([f"proxyless call: {first}", *others]), sys.stderr)

    def _report_reflection(self, error: grpc.RpcError) -> int:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            text = "server has no reflection, wanted --protoset FILE, or --data-hex and the like"
            return fail("call", [text])
        _note("the reflection RPC failed: --protoset FILE replaces it")
        self._print_explanation(error)
        number: int = error.code().value[0]
        return STATUS_EXIT_CODE + number


async def _responses(call: Any, *, is_unary: bool) -> AsyncIterator[bytes]:  # noqa: ANN401
    if is_unary:
        yield await call
        return
    async for response in call:
        yield response


def describe_route(route: CallRoute) -> str:
    """The backend of the last attempt, and the number of attempts if there were more."""
    if route.address is None:
        return "went to no backend"
    text = f"went to {route.address}"
    if route.cluster is not None:
        text += f", cluster {quote(route.cluster)}"
    return f"{text}, with attempt {route.attempts}" if route.attempts > 1 else text


def _print_metadata(kind: str, metadata: Sequence[tuple[str, str | bytes]]) -> None:
    for key, value in metadata:
        shown = value if isinstance(value, str) else base64.b64encode(value).decode()
        print_lines(f"{kind} {one_line(key)}: {one_line(shown)}", sys.stderr)


def _note(text: str) -> None:
    print_lines(f"* {text}", sys.stderr)
