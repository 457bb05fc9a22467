"""Unit tests of proxyless.wire.headers."""

from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.wire.headers import (
    RequestEncoder,
    decode_timeout,
    encode_response_head,
    encode_timeout,
    encode_trailers,
    parse_request,
    parse_response,
)
from proxyless.wire.hpack import decode_fields
from proxyless.wire.status import StreamEnd

METADATA: Metadata = (("x-text", "a, b"), ("x-bytes-bin", b"\x00\xff"), ("x-text", "again"))
HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def fields_of(block: bytes) -> list[tuple[bytes, bytes]]:
    return decode_fields(block, 100_000)


# Timeouts


@pytest.mark.parametrize(
    ("timeout_s", "value"),
    [
        (0.0, b"0n"),
        (-5.0, b"0n"),
        (1e-9, b"1n"),
        (1.5e-9, b"2n"),
        (0.05, b"50000000n"),
        (0.099999999, b"99999999n"),
        (0.1, b"100000u"),
        (1.0, b"1000000u"),
        (99.999999, b"99999999u"),
        (100.0, b"100000m"),
        (99_999.999, b"99999999m"),
        (100_000.0, b"100000S"),
        (99_999_999.0, b"99999999S"),
        (100_000_000.0, b"1666667M"),
        (6e9, b"1666667H"),
        (1e12, b"99999999H"),
        (inf, b"99999999H"),
    ],
)
def test_a_timeout_is_sent_in_the_finest_unit_that_fits(timeout_s: float, value: bytes) -> None:
    assert encode_timeout(timeout_s) == value


@given(st.floats(0, 3e11, allow_nan=False))
@example(0.1 + 0.2)
def test_a_timeout_is_never_shortened_by_more_than_a_rounding_error(timeout_s: float) -> None:
    value = encode_timeout(timeout_s)
    assert len(value) <= 9
    decoded_s = decode_timeout(value)
    assert decoded_s is not None
    # Eight digits: the value does not fit into the next finer unit.
    assert timeout_s * (1 - 1e-9) - 1e-14 <= decoded_s <= timeout_s * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize(
    ("value", "timeout_s"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9)],
)
def test_each_unit_is_decoded(value: bytes, timeout_s: float) -> None:
    assert decode_timeout(value) == pytest.approx(timeout_s)


@pytest.mark.parametrize(
    "value", [b"", b"S", b"1", b"1s", b"-1S", b"1.5S", b"+1S", b" 1S", b"123456789S", b"1_0S"]
)
def test_an_invalid_timeout_is_none(value: bytes) -> None:
    assert decode_timeout(value) is None


# Requests


def encoder() -> RequestEncoder:
    return RequestEncoder(path="/s/m", authority="a.example", scheme="https", user_agent="me/1")


def test_a_request_has_the_fields_of_grpc_in_order() -> None:
    assert fields_of(encoder().block()) == [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", b"/s/m"),
        (b":authority", b"a.example"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"me/1"),
        (b"grpc-accept-encoding", b"identity,deflate,gzip"),
    ]


def test_timeout_encoding_and_metadata_follow() -> None:
    plain = encoder().block()
    full = encoder().block(1.5, METADATA, "gzip")
    assert fields_of(full) == [
        *fields_of(plain),
        (b"grpc-timeout", b"1500000u"),
        (b"grpc-encoding", b"gzip"),
        (b"x-text", b"a, b"),
        (b"x-bytes-bin", b"AP8"),
        (b"x-text", b"again"),
    ]


def test_a_request_is_parsed_as_it_was_encoded() -> None:
    request = parse_request(fields_of(encoder().block(1.5, METADATA, "gzip")))
    assert request.method == b"POST"
    assert request.path == "/s/m"
    assert request.authority == "a.example"
    assert request.is_grpc
    assert request.timeout_s == 1.5
    assert request.encoding == "gzip"
    assert set(METADATA) <= set(request.metadata)
    assert "grpc-timeout" not in dict(request.metadata)


def test_blocks_of_one_encoder_do_not_influence_each_other() -> None:
    one = encoder()
    before = one.block(1.0)
    one.block(2.0, METADATA, "gzip")
    assert one.block(1.0) == before == encoder().block(1.0)


@pytest.mark.parametrize("path", ["/é/m", "/s/m\n", "/s/\x00"])
def test_a_path_that_is_not_valid_in_a_header_raises(path: str) -> None:
    with pytest.raises(ValueError, match="is not valid, wanted printable ASCII"):
        RequestEncoder(path=path, authority="a")


def test_the_cache_of_timeouts_is_bounded() -> None:
    one = encoder()
    for n in range(5000):
        one.block(n / 7)
    assert len(one._with_timeout) <= 256
    assert (b"grpc-timeout", b"1000000u") in fields_of(one.block(1.0))


def test_an_empty_request_is_parsed_to_defaults() -> None:
    request = parse_request([])
    assert (request.method, request.path, request.timeout_s) == (b"", "", None)
    assert not request.is_grpc
    assert (request.encoding, request.metadata) == ("identity", ())


CONTENT_TYPES = [
    (b"application/grpc", True),
    (b"application/grpc+proto", True),
    (b"application/grpc;charset=utf-8", True),
    (b"application/grpc-web", False),
    (b"application/grpc-web+proto", False),
    (b"application/grpcfoo", False),
    (b"application/json", False),
    (b"text/html", False),
    (b"", False),
]


@pytest.mark.parametrize(("content_type", "is_grpc"), CONTENT_TYPES)
def test_a_request_is_grpc_by_its_content_type(content_type: bytes, is_grpc: bool) -> None:
    assert parse_request([(b"content-type", content_type)]).is_grpc is is_grpc


# Responses


def test_a_head_carries_metadata_and_encoding() -> None:
    head = parse_response(fields_of(encode_response_head(METADATA, "gzip")))
    assert head.metadata == METADATA
    assert head.encoding == "gzip"
    assert head.refusal is None
    assert not head.is_informational


def test_trailers_carry_status_and_metadata() -> None:
    status = Status(StatusCode.NOT_FOUND, "50% of é")
    block = parse_response(fields_of(encode_trailers(status, METADATA)))
    assert block.end == StreamEnd(status, METADATA)
    assert block.end.is_from_trailers


def test_trailers_of_ok_have_no_message() -> None:
    assert fields_of(encode_trailers(OK)) == [(b"grpc-status", b"0")]


def test_head_and_trailers_in_one_block_are_both() -> None:
    block = encode_response_head() + encode_trailers(Status(StatusCode.ABORTED, "x"))
    response = parse_response(fields_of(block))
    assert response.refusal is None
    assert response.end == StreamEnd(Status(StatusCode.ABORTED, "x"))


def test_trailers_without_a_status_are_unknown() -> None:
    end = parse_response([(b"x-text", b"1")]).end
    assert end.status == Status(StatusCode.UNKNOWN, "peer ended the stream without grpc-status")
    assert end.trailers == (("x-text", "1"),)


def test_a_head_without_status_is_refused() -> None:
    refusal = parse_response([(b"content-type", b"application/grpc")]).refusal
    assert refusal is not None
    assert refusal.status == Status(
        StatusCode.INTERNAL, "peer sent a response head without :status"
    )


@pytest.mark.parametrize(("content_type", "is_grpc"), CONTENT_TYPES)
def test_a_head_that_is_not_grpc_is_refused(content_type: bytes, is_grpc: bool) -> None:
    block = parse_response([(b":status", b"200"), (b"content-type", content_type)])
    if is_grpc:
        assert block.refusal is None
    else:
        assert block.refusal is not None
        assert block.refusal.status.code is StatusCode.UNKNOWN
        assert block.end == block.refusal


@pytest.mark.parametrize(
    "http_status", [b"", b"2xx", b"2000", b"\xb2\xb2\xb2", b"-20", b"9" * 5000, b"+20"]
)
def test_a_status_that_is_not_a_number_is_unknown(http_status: bytes) -> None:
    block = parse_response([(b":status", http_status)])
    assert block.end.status.code is StatusCode.UNKNOWN


def test_an_http_error_is_the_end_of_the_call() -> None:
    block = parse_response([(b":status", b"503"), (b"content-type", b"text/plain"), (b"x", b"y")])
    assert block.end.status.code is StatusCode.UNAVAILABLE
    assert block.end.trailers == (("x", "y"),)
    assert block.refusal == block.end


def test_grpc_status_wins_over_the_http_status() -> None:
    block = parse_response([(b":status", b"503"), (b"grpc-status", b"5")])
    assert block.end.status.code is StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("http_status", "informational"),
    [(b"100", True), (b"103", True), (b"200", False), (b"1", False), (b"1000", False)],
)
def test_1xx_is_informational(http_status: bytes, informational: bool) -> None:
    assert parse_response([(b":status", http_status)]).is_informational is informational


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b"AP8", [b"\x00\xff"]),
        (b"AP8=", [b"\x00\xff"]),
        (b"AP8,YQ==, Yg", [b"\x00\xff", b"a", b"b"]),
        (b"YQ,!,Yg", [b"a", b"b"]),
        (b"", [b""]),
    ],
)
def test_binary_metadata_may_come_as_a_list(value: bytes, decoded: list[bytes]) -> None:
    block = parse_response([*HEAD, (b"k-bin", value)])
    assert block.metadata == tuple(("k-bin", each) for each in decoded)


def test_text_metadata_with_commas_is_one_value() -> None:
    assert parse_response([*HEAD, (b"k", b"a,b")]).metadata == (("k", "a,b"),)


@given(st.lists(st.tuples(st.binary(), st.binary()), max_size=6))
def test_any_fields_can_be_parsed(fields: list[tuple[bytes, bytes]]) -> None:
    parse_request(fields)
    parse_response(fields)
