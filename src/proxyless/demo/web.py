"""View of the demo, or of another process, as a web page, from a small HTTP server on loopback.

`GET /` is the page, one file without external resources, and `GET /events` is a stream of views as
server-sent events. A connection that does not read is closed.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.controlplane.bind_errors import describe_bind_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

REQUEST_BYTES_MAX: Final = 16_384
REQUEST_S_MAX: Final = 10.0
VISITORS_MAX: Final = 32

# Other names are rejected, so that no other site can read the page through DNS rebinding.
_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src data:; "
        "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    ),
    "X-Content-Type-Options": "nosniff",
}


class ShownOnPage(Protocol):
    """A view that the page shows: that of the demo, or one with a `title` of its own."""

    def to_json(self) -> dict[str, Any]: ...


def load_page() -> bytes:
    return resources.files("proxyless.demo").joinpath("page.html").read_bytes()


def encode_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (_HEADERS | dict(headers)).items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def encode_response(status: int, body: bytes, content_type: str = "text/plain") -> bytes:
    headers = {"Content-Type": f"{content_type}; charset=utf-8", "Content-Length": str(len(body))}
    return encode_head(status, headers) + body


def encode_event(view: ShownOnPage) -> bytes:
    """A view as a server-sent event."""
    text = json.dumps(view.to_json(), separators=(",", ":"), ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def parse_request(head: bytes) -> tuple[int, str]:
    """The status of the response to a request, and its path if that is 200."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, path, version
        return 400, ""
    fields = (line.partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    if headers.get("host", "").partition(":")[0] not in _HOSTS:
        return 403, ""
    if parts[0] != "GET":
        return 405, ""
    return 200, parts[1].partition("?")[0]


class Page:
    """HTTP server of the page and of the views."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._page: Final = load_page()
        self._server: asyncio.Server | None = None
        # The newest view, and the event that is set by the next one.
        self._event = b""
        self._is_newer: asyncio.Event = asyncio.Event()
        self._visitors: set[asyncio.Task[None]] = set()
        self._is_watched: Final = asyncio.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    async def __aenter__(self) -> Self:
        """Raises OSError if the port cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._on_visitor, "127.0.0.1", self._port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            reason = describe_bind_error(error)
            raise OSError(f"page cannot be served at {self.address!r}: {reason}") from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None, "it was entered"
        self._server.close()
        for visitor in self._visitors:
            visitor.cancel()
        if self._visitors:
            await asyncio.wait(self._visitors)
        await self._server.wait_closed()

    async def wait_for_visitor(self, timeout_s: float) -> None:
        """Wait until the first browser reads events, or until the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_watched.wait()

    def show(self, view: ShownOnPage) -> None:
        self._event = encode_event(view)
        # Each view has its own asyncio.Event, so that later waiters wait for the next view.
        self._is_newer.set()
        self._is_newer = asyncio.Event()

    def _on_visitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._visitors.add(task)
        task.add_done_callback(self._visitors.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
            writer.close()
            async with asyncio.timeout(REQUEST_S_MAX):
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The connection was closed, or sent no HTTP request.
        finally:
            # Unread output must not keep the connection open.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_S_MAX):
            status, path = parse_request(await reader.readuntil(b"\r\n\r\n"))
        if len(self._visitors) > VISITORS_MAX:
            status = HTTPStatus.SERVICE_UNAVAILABLE
        if status == HTTPStatus.OK and path == "/events":
            await self._stream(writer)
            return
        if status == HTTPStatus.OK and path == "/":
            writer.write(encode_response(200, self._page, "text/html"))
        else:
            status = HTTPStatus.NOT_FOUND if status == HTTPStatus.OK else status
            writer.write(encode_response(status, HTTPStatus(status).phrase.encode()))
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_head(200, {"Content-Type": "text/event-stream; charset=utf-8"}))
        self._is_watched.set()
        while True:
            is_newer = self._is_newer
            if self._event:
                writer.write(self._event)
                async with asyncio.timeout(REQUEST_S_MAX):
                    await writer.drain()
            await is_newer.wait()
