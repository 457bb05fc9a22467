"""Unit tests of proxyless.transport.http_connect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.transport.http_connect import (
    HEAD_BYTES_MAX,
    Accepted,
    ConnectResponse,
    Refused,
    encode_connect,
)

OK = b"HTTP/1.1 200 Connection established\r\n\r\n"


def answer(*pieces: bytes) -> Accepted | Refused | None:
    """The verdict after the last piece; asserts that there is none before."""
    core = ConnectResponse()
    for piece in pieces[:-1]:
        assert core.receive(piece) is None
    return core.receive(pieces[-1])


def test_a_request_names_the_target_twice() -> None:
    assert encode_connect("[::1]:443") == b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n"


def test_request_has_the_authorization() -> None:
    assert encode_connect("a:1", "Basic eDp5") == (
        b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200\r\n\r\n",
        b"HTTP/1.1 200 \r\n\r\n",
        b"HTTP/1.1 299 so be it\r\nVia: 1.1 proxy\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 204 bare line feeds\nVia: x\n\n",
    ],
)
def test_2xx_opens_the_tunnel_and_keeps_the_bytes_after_the_head(head: bytes) -> None:
    assert answer(head) == Accepted(b"")
    assert answer(head + b"\0\0\x12\r\n\r\n") == Accepted(b"\0\0\x12\r\n\r\n")


@given(st.lists(st.integers(1, 8), max_size=40), st.binary(max_size=20))
def test_response_is_parsed_in_pieces_of_any_size(sizes: list[int], rest: bytes) -> None:
    data, core = OK + rest, ConnectResponse()
    verdict, taken = None, 0
    for size in [*sizes, len(data)]:
        verdict = core.receive(data[taken : taken + size])
        taken = min(taken + size, len(data))
        if verdict is not None:
            break
        assert taken < len(OK)
    # The tunnel continues at this offset.
    assert verdict == Accepted(data[len(OK) : taken])


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "407 Proxy Authentication Required",
        ),
        (b"HTTP/1.1 502\r\n\r\n", "502"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, "100 Continue"),
        (b"HTTP/1.1 199 x\r\n\r\n", "199 x"),
        (b"HTTP/1.1 300 x\r\n\r\n", "300 x"),
        (b"HTTP/1.1 500 a\x1b[31mb\r\n\r\n", "500 a\\x1b[31mb"),
    ],
)
def test_any_other_status_is_named(head: bytes, shown: str) -> None:
    expected = Refused(f"answered CONNECT with HTTP status {shown!r}, wanted 200 to 299")
    assert answer(head) == expected


def test_a_long_reason_is_cut() -> None:
    verdict = answer(b"HTTP/1.1 500 " + b"x" * 9000 + b"\r\n\r\n")
    assert isinstance(verdict, Refused)
    assert len(verdict.why) < 250


@pytest.mark.parametrize(
    "garbage",
    [b"\x15\x03\x01\0\x02\x02", b"SSH-2.0-x\r\n", b"\0\0\x12\x04\0", b"HTTP/2 200\r\n", b"H\n"],
    ids=["tls alert", "ssh", "http2", "other version", "start only"],
)
def test_response_that_is_not_http_is_refused_at_once(garbage: bytes) -> None:
    verdict = answer(garbage)
    assert isinstance(verdict, Refused)
    assert "which is not HTTP/1" in verdict.why
    assert verdict.why.isprintable()


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 ok", b"HTTP/1.1  200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.x 200 OK"]
)
def test_a_head_without_status_line_is_refused(line: bytes) -> None:
    verdict = answer(line + b"\r\n\r\n")
    assert isinstance(verdict, Refused)
    assert "wanted a status line" in verdict.why


def test_size_of_the_head_is_limited() -> None:
    start, end = b"HTTP/1.1 200 OK\r\nX: ", b"\r\n\r\n"
    fits = start + b"x" * (HEAD_BYTES_MAX - len(start) - len(end)) + end
    assert answer(fits + b"rest") == Accepted(b"rest")
    too_long = Refused("answered CONNECT with a head of more than 16384 bytes")
    assert answer(start + b"x" + fits[len(start) :]) == too_long


def test_a_head_without_end_is_refused_before_it_takes_more_memory() -> None:
    core, taken = ConnectResponse(), 0
    verdict = core.receive(b"HTTP/1.1 200 OK\r\n")
    while verdict is None:
        verdict = core.receive(b"X: y\r\n" * 100)
        taken += 600
    assert isinstance(verdict, Refused)
    assert taken < HEAD_BYTES_MAX + 600


def test_early_end_names_the_number_of_received_bytes() -> None:
    core = ConnectResponse()
    assert core.on_end() == Refused("closed the connection without an answer to CONNECT")
    core.receive(b"HTTP/1.1 200")
    assert core.on_end() == Refused("closed the connection after 12 bytes of its answer")


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_bytes_of_any_kind_raise_nothing(pieces: list[bytes]) -> None:
    core = ConnectResponse()
    for piece in pieces:
        if core.receive(piece) is not None:
            break
    assert core.on_end().why
