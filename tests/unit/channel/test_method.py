"""Unit tests of proxyless.channel.method."""

from proxyless.channel import Call, ChannelOptions
from proxyless.channel.channel import choose_call_type
from proxyless.channel.measured_call import MeasuredCall
from proxyless.channel.method import AUTHORITIES_MAX, MessageLimits, make_method
from proxyless.channel.service_config import MethodConfig
from proxyless.metrics import NO_METRICS
from proxyless.metrics.instruments import ATTEMPT_STARTED
from proxyless.wire import RequestEncoder
from proxyless.wire.headers import RequestBlock, parse_request
from proxyless.wire.hpack import decode_fields
from tests.worlds.stats_plugins import TARGET, RecordingPlugin

PATH = "/pkg.Service/Method"


def test_without_plugins_nothing_is_measured() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    assert (method.path, method.plain_info.path) == (PATH, PATH)
    assert method.recorder is None
    assert choose_call_type(NO_METRICS) is Call


def test_recorder_gets_whether_the_method_is_registered() -> None:
    plugin = RecordingPlugin(named=False)
    options = ChannelOptions(metrics=plugin.metrics)
    for is_registered in (False, True):
        method = make_method(PATH, "orders", options, is_registered=is_registered)
        assert method.recorder is not None
        method.recorder.on_attempt_start()
    assert plugin.counts(ATTEMPT_STARTED) == {("other", TARGET, ""): 1, (PATH[1:], TARGET, ""): 1}
    assert choose_call_type(plugin.metrics) is MeasuredCall


def encoded(encoder: RequestEncoder) -> RequestBlock:
    return parse_request(decode_fields(encoder.block(), 1 << 16))


def test_encoder_for_another_authority_differs_only_in_the_authority() -> None:
    options = ChannelOptions(user_agent="mine")
    method = make_method(PATH, "orders", options, is_registered=True)
    own, other = encoded(method.encoder), encoded(method.encoder_for("a.test"))
    assert (own.authority, other.authority) == ("orders", "a.test")
    assert (own.path, own.metadata) == (other.path, other.metadata)
    assert method.encoder_for("a.test") is method.encoder_for("a.test")


def test_invalid_characters_of_an_authority_are_encoded() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    assert encoded(method.encoder_for("b\xfccher\n")).authority == "b%C3%BCcher%0A"


def test_cache_of_authorities_is_limited() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    first = method.encoder_for("0")
    for number in range(1, AUTHORITIES_MAX):
        method.encoder_for(str(number))
    assert method.encoder_for("0") is first
    method.encoder_for("one more")
    assert method.encoder_for("0") is not first


def test_limits_are_narrowed_by_the_config_of_the_method() -> None:
    limits = MessageLimits(100)
    assert limits.narrowed(MethodConfig()) == limits
    config = MethodConfig(request_bytes_max=50, response_bytes_max=60)
    assert limits.narrowed(config) == MessageLimits(50, 60)
    assert limits.narrowed(MethodConfig(request_bytes_max=500)) == limits
