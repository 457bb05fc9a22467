"""Unit tests of proxyless.xds.client.lrs_codec."""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.protos import message_class
from proxyless.xds.client import lrs_codec


@given(st.binary(max_size=200))
def test_decoding_raises_nothing_for_any_bytes(serialized: bytes) -> None:
    lrs_codec.decode_load_response(serialized)


def test_load_response_is_rejected_when_it_is_too_large() -> None:
    kind = message_class("envoy.service.load_stats.v3.LoadStatsResponse")
    few, many = kind(clusters=["c"] * 100_000), kind(clusters=["c"] * 200_000)
    assert lrs_codec.decode_load_response(few.SerializeToString()) is not None
    assert lrs_codec.decode_load_response(many.SerializeToString()) is None


def test_load_response_has_clusters_or_requests_all() -> None:
    message = message_class("envoy.service.load_stats.v3.LoadStatsResponse")(clusters=["c", "d"])
    message.load_reporting_interval.FromMilliseconds(1500)
    response = lrs_codec.decode_load_response(message.SerializeToString())
    assert response == lrs_codec.LoadStatsResponse(1.5, frozenset({"c", "d"}))
    message.send_all_clusters = True
    assert lrs_codec.decode_load_response(
        message.SerializeToString()
    ) == lrs_codec.LoadStatsResponse(1.5, None)
