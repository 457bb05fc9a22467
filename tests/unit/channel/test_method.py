"""Unit tests of proxyless.channel.method."""

from proxyless.channel import Call, ChannelOptions
from proxyless.channel.channel import choose_call_type
from proxyless.channel.measured import MeasuredCall
from proxyless.channel.method import AUTHORITIES_MAX, MessageLimits, make_method
from proxyless.channel.service_config import MethodConfig
from proxyless.metrics import NO_METRICS
from proxyless.metrics.instruments import ATTEMPT_STARTED
from proxyless.wire import RequestEncoder
from proxyless.wire.headers import RequestBlock, understand_request
from proxyless.wire.hpack import decode_fields
from tests.metrics_world import TARGET, RecordingPlugin

PATH = "/pkg.Service/Method"


def test_without_plugins_nothing_is_measured() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    assert (method.path, method.plain_info.path) == (PATH, PATH)
    assert method.recorder is None
    assert choose_call_type(NO_METRICS) is Call


def test_with_plugins_a_method_knows_whether_generated_code_knows_it() -> None:
    plugin = RecordingPlugin(named=False)
    options = ChannelOptions(metrics=plugin.metrics)
    for is_registered in (False, True):
        method = make_method(PATH, "orders", options, is_registered=is_registered)
        assert method.recorder is not None
        method.recorder.on_attempt_start()
    assert plugin.counts(ATTEMPT_STARTED) == {("other", TARGET): 1, (PATH[1:], TARGET): 1}
    assert choose_call_type(plugin.metrics) is MeasuredCall


def encoded(encoder: RequestEncoder) -> RequestBlock:
    return understand_request(decode_fields(encoder.block(), 1 << 16))


def test_attempts_with_an_authority_of_their_own_differ_in_nothing_else() -> None:
    options = ChannelOptions(user_agent="mine")
    method = make_method(PATH, "orders", options, is_registered=True)
    own, other = encoded(method.encoder), encoded(method.encoder_for("a.test"))
    assert (own.authority, other.authority) == ("orders", "a.test")
    assert (own.path, own.metadata) == (other.path, other.metadata)
    assert method.encoder_for("a.test") is method.encoder_for("a.test")


def test_what_no_authority_can_have_is_encoded() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    assert encoded(method.encoder_for("b\xfccher\n")).authority == "b%C3%BCcher%0A"


def test_authorities_are_forgotten_before_there_are_too_many() -> None:
    method = make_method(PATH, "orders", ChannelOptions(), is_registered=True)
    first = method.encoder_for("0")
    for number in range(1, AUTHORITIES_MAX):
        method.encoder_for(str(number))
    assert method.encoder_for("0") is first
    method.encoder_for("one more")
    assert method.encoder_for("0") is not first


def test_limits_are_narrowed_by_the_config_of_the_method() -> None:
    limits = MessageLimits(100)
    assert limits.narrowed(MethodConfig()) is limits
    config = MethodConfig(request_bytes_max=50, response_bytes_max=60)
    assert limits.narrowed(config) == MessageLimits(50, 60)
    assert limits.narrowed(MethodConfig(request_bytes_max=500)) == limits
