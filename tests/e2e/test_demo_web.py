"""The web server of the demo's page."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from proxyless.demo.web import REQUEST_BYTES_MAX, Page, load_page
from tests.unit.demo.views import VIEW


async def ask(page: Page, line: str, host: str = "127.0.0.1") -> bytes:
    """The whole response."""
    reader, writer = await connect(page, line, host)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def connect(
    page: Page, line: str, host: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(page.address.rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line}\r\nHost: {host}:{port}\r\n\r\n".encode())
    return reader, writer


async def test_the_page_is_at_the_root() -> None:
    async with Page() as page:
        head, _, body = (await ask(page, "GET / HTTP/1.1")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == load_page()


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET /other HTTP/1.1", "127.0.0.1", b"404 Not Found"),
        ("POST / HTTP/1.1", "127.0.0.1", b"405 Method Not Allowed"),
        ("GET /events HTTP/1.1", "evil.example", b"403 Forbidden"),
        ("nonsense", "127.0.0.1", b"400 Bad Request"),
    ],
)
async def test_other_requests_are_rejected(line: str, host: str, status: bytes) -> None:
    async with Page() as page:
        assert (await ask(page, line, host)).startswith(b"HTTP/1.1 " + status)


async def test_request_over_the_limit_is_cut_off() -> None:
    async with Page() as page:
        assert await ask(page, "GET /" + "x" * 2 * REQUEST_BYTES_MAX) == b""


async def test_stream_has_the_newest_view_and_all_later_ones() -> None:
    async with Page() as page:
        page.show(VIEW)
        page.show(replace(VIEW, sent=2))
        await page.wait_for_visitor(0.0)
        reader, writer = await connect(page, "GET /events HTTP/1.1")
        await page.wait_for_visitor(10.0)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream" in head
        assert await read_sent(reader) == 2
        page.show(replace(VIEW, sent=3))
        assert await read_sent(reader) == 3
    # The end of the demo is the end of the stream.
    assert await reader.read() == b""
    writer.close()


async def read_sent(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(10):
        event = await reader.readuntil(b"\n\n")
    sent: int = json.loads(event.removeprefix(b"data: "))["sent"]
    return sent
