"""Unit tests of proxyless.channel.method."""

from proxyless.channel import Call, ChannelOptions
from proxyless.channel.measured import MeasuredCall
from proxyless.channel.method import choose_call_type, make_method
from proxyless.metrics import NO_METRICS
from proxyless.metrics.instruments import ATTEMPT_STARTED
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
