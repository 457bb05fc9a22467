"""Unit tests of proxyless.demo.web: requests, responses, and the page."""

from __future__ import annotations

import json
import re
import socket

import pytest

from proxyless.demo.web import Page, encode_event, encode_response, load_page, parse_request
from tests.unit.demo.views import VIEW


def request(line: str, host: str = "127.0.0.1:8080") -> bytes:
    return f"{line}\r\nHost: {host}\r\nAccept: */*\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (request("GET / HTTP/1.1"), (200, "/")),
        (request("GET /events?x=1 HTTP/1.1", "localhost:1"), (200, "/events")),
        (request("POST / HTTP/1.1"), (405, "")),
        (request("GET / HTTP/1.1", "evil.example"), (403, "")),
        (b"GET / HTTP/1.1\r\n\r\n", (403, "")),
        (request("GET /"), (400, "")),
        (request("GET / HTTP/2"), (400, "")),
        (b"\xff\xfe\r\n\r\n", (400, "")),
    ],
)
def test_request_is_rejected_unless_it_is_a_get_for_a_loopback_name(
    head: bytes, expected: tuple[int, str]
) -> None:
    assert parse_request(head) == expected


def test_response_has_its_length_and_a_content_security_policy() -> None:
    head, _, body = encode_response(200, b"<p>", "text/html").partition(b"\r\n\r\n")
    assert body == b"<p>"
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert "Content-Type: text/html; charset=utf-8" in lines
    assert "Content-Length: 3" in lines
    assert any(line.startswith("Content-Security-Policy: default-src 'none'") for line in lines)


def test_event_is_one_line_of_json() -> None:
    event = encode_event(VIEW)
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event.removeprefix(b"data: "))["sent"] == 1234


def test_page_is_one_small_file_without_external_resources() -> None:
    page = load_page().decode()
    assert len(page) < 40_000
    names = {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\"'\s]+", page)) <= names
    assert not re.search(r"<script[^>]+src=|@import|url\(", page)
    assert "innerHTML" not in page, "values are shown as text and never as markup"


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = (int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_colours_have_enough_contrast(scheme: int) -> None:
    blocks = re.findall(r":root \{([^}]*)\}", load_page().decode())
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", blocks[scheme]))
    texts = {"text", "soft", "good", "warn", "bad", "calm", "zone-a", "zone-b", "zone-c"}
    assert texts <= set(colours)
    for name in texts:
        for behind in ("card", "page"):
            assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)


async def test_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = f"page cannot be served at 'http://127.0.0.1:{port}/': address in use"
        with pytest.raises(OSError, match=text):
            await Page(port).__aenter__()
