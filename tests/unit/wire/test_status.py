"""Unit tests of proxyless.wire.status."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import OK, Status, StatusCode
from proxyless.wire.errors import ErrorCode
from proxyless.wire.status import (
    decode_grpc_message,
    encode_grpc_message,
    end_of_reset,
    status_of_http,
    status_of_trailers,
)


@pytest.mark.parametrize(
    ("http_status", "code"),
    [
        (400, StatusCode.INTERNAL),
        (401, StatusCode.UNAUTHENTICATED),
        (403, StatusCode.PERMISSION_DENIED),
        (404, StatusCode.UNIMPLEMENTED),
        (429, StatusCode.UNAVAILABLE),
        (502, StatusCode.UNAVAILABLE),
        (503, StatusCode.UNAVAILABLE),
        (504, StatusCode.UNAVAILABLE),
        (200, StatusCode.UNKNOWN),
        (301, StatusCode.UNKNOWN),
        (405, StatusCode.UNKNOWN),
        (500, StatusCode.UNKNOWN),
        (0, StatusCode.UNKNOWN),
    ],
)
def test_http_statuses_map_to_codes(http_status: int, code: StatusCode) -> None:
    status = status_of_http(http_status, "text/html")
    assert status.code is code
    assert (
        status.details
        == f"peer answered HTTP status {http_status} with content-type 'text/html', not gRPC"
    )


@pytest.mark.parametrize(
    ("reset", "code"),
    [
        (ErrorCode.NO_ERROR, StatusCode.INTERNAL),
        (ErrorCode.PROTOCOL_ERROR, StatusCode.INTERNAL),
        (ErrorCode.INTERNAL_ERROR, StatusCode.INTERNAL),
        (ErrorCode.FLOW_CONTROL_ERROR, StatusCode.INTERNAL),
        (ErrorCode.SETTINGS_TIMEOUT, StatusCode.INTERNAL),
        (ErrorCode.STREAM_CLOSED, StatusCode.INTERNAL),
        (ErrorCode.FRAME_SIZE_ERROR, StatusCode.INTERNAL),
        (ErrorCode.REFUSED_STREAM, StatusCode.UNAVAILABLE),
        (ErrorCode.CANCEL, StatusCode.CANCELLED),
        (ErrorCode.COMPRESSION_ERROR, StatusCode.INTERNAL),
        (ErrorCode.CONNECT_ERROR, StatusCode.INTERNAL),
        (ErrorCode.ENHANCE_YOUR_CALM, StatusCode.RESOURCE_EXHAUSTED),
        (ErrorCode.INADEQUATE_SECURITY, StatusCode.PERMISSION_DENIED),
        (ErrorCode.HTTP_1_1_REQUIRED, StatusCode.INTERNAL),
        (0xFFFF_FFFF, StatusCode.INTERNAL),
    ],
)
def test_resets_map_to_codes(reset: int, code: StatusCode) -> None:
    end = end_of_reset(reset)
    assert end.status.code is code
    assert end.status.details.startswith("stream reset by peer: ")
    assert not end.trailers


@pytest.mark.parametrize("code", ErrorCode)
def test_only_a_refused_stream_is_unprocessed(code: ErrorCode) -> None:
    assert end_of_reset(code).is_unprocessed is (code is ErrorCode.REFUSED_STREAM)


def test_a_reset_is_named_in_the_text() -> None:
    assert end_of_reset(8).status.details == "stream reset by peer: CANCEL"
    assert end_of_reset(99).status.details == "stream reset by peer: error code 0x63"


# Trailers


@pytest.mark.parametrize("code", StatusCode)
def test_each_code_is_parsed_from_trailers(code: StatusCode) -> None:
    details = "a b" if code else ""
    assert status_of_trailers(b"%d" % code, b"a%20b") == Status(code, details)


@pytest.mark.parametrize("message", [b"", b"fine"])
def test_status_0_is_the_shared_ok(message: bytes) -> None:
    assert status_of_trailers(b"0", message) is OK


@pytest.mark.parametrize(
    "text",
    [b"17", b"99", b"-1", b"+1", b" 1", b"1_0", b"", b"OK", b"0x1", b"1.0", b"9" * 5000, b"\xff"],
)
def test_an_invalid_code_is_unknown(text: bytes) -> None:
    status = status_of_trailers(text, b"why")
    assert status.code is StatusCode.UNKNOWN
    assert status.details.startswith("peer sent grpc-status '")
    assert status.details.endswith(": why")
    assert status_of_trailers(text, b"").details.endswith("'")


@pytest.mark.parametrize(
    ("details", "encoded"),
    [
        ("plain text, (printable) ~!", b"plain text, (printable) ~!"),
        ("100%", b"100%25"),
        ("a\nb\x7f", b"a%0Ab%7F"),
        ("é☃", b"%C3%A9%E2%98%83"),
        ("", b""),
    ],
)
def test_details_are_percent_encoded(details: str, encoded: bytes) -> None:
    assert encode_grpc_message(details) == encoded
    assert decode_grpc_message(encoded) == details


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_details_are_decoded_as_they_were_encoded(details: str) -> None:
    encoded = encode_grpc_message(details)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert decode_grpc_message(encoded) == details


@pytest.mark.parametrize(
    ("encoded", "details"),
    [(b"%", "%"), (b"50%zz", "50%zz"), (b"%4", "%4"), (b"%FFx", "\ufffdx"), (b"\xe9", "\ufffd")],
)
def test_badly_encoded_details_are_kept(encoded: bytes, details: str) -> None:
    assert decode_grpc_message(encoded) == details


def test_details_that_are_not_unicode_are_sent() -> None:
    assert encode_grpc_message("\ud800") == b"?"
