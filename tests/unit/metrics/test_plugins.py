"""Unit tests of proxyless.metrics.plugins."""

import logging
import sys
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from proxyless.metrics import (
    NO_METRICS,
    Cancel,
    choose_plugins,
    deregister_global,
    register_global,
)
from proxyless.metrics.instruments import ATTEMPT_STARTED, CALL_DURATION, XDS_CONNECTED
from proxyless.metrics.plugins import Metrics
from tests.worlds.stats_plugins import RecordingPlugin


@pytest.fixture
def registered() -> Iterator[RecordingPlugin]:
    plugin = RecordingPlugin()
    register_global(plugin)
    yield plugin
    deregister_global(plugin)


class OneTarget(RecordingPlugin):
    """Interested in one target only."""

    def is_interested_in(self, target: str) -> bool:
        return target == "dns:///wanted"


class Broken(RecordingPlugin):
    """Raises in every method."""

    def count(self, *_: object, **__: object) -> None:
        raise RuntimeError("broken")

    def watch(self, *_: object, **__: object) -> Cancel:
        raise RuntimeError("broken")

    def is_interested_in(self, target: str) -> bool:
        raise RuntimeError("broken")


def test_without_plugins_nothing_is_active() -> None:
    assert choose_plugins("dns:///a") is NO_METRICS
    assert not NO_METRICS.active
    NO_METRICS.count(ATTEMPT_STARTED, ("method", "target"))


def test_a_channel_has_the_registered_plugins_and_its_own_each_once(
    registered: RecordingPlugin,
) -> None:
    own = RecordingPlugin()
    metrics = choose_plugins("dns:///a", [own, registered])
    assert metrics.plugins == (registered, own)
    assert metrics.active
    assert metrics.target == "dns:///a"


def test_a_channel_keeps_the_plugins_it_was_created_with(registered: RecordingPlugin) -> None:
    before = choose_plugins("dns:///a")
    other = RecordingPlugin()
    register_global(other)
    deregister_global(other)
    assert before.plugins == (registered,)
    assert choose_plugins("dns:///a").plugins == (registered,)


def test_a_plugin_collects_only_for_targets_it_is_interested_in() -> None:
    plugin = OneTarget()
    assert choose_plugins("dns:///wanted", [plugin]).plugins == (plugin,)
    assert choose_plugins("dns:///other", [plugin]) is NO_METRICS


def test_registering_twice_raises(registered: RecordingPlugin) -> None:
    with pytest.raises(RuntimeError, match="is registered already"):
        register_global(registered)
    with pytest.raises(RuntimeError, match="is not registered"):
        deregister_global(RecordingPlugin())


def test_every_plugin_records_a_measurement() -> None:
    plugins = [RecordingPlugin(), RecordingPlugin()]
    metrics = Metrics("t", plugins)
    metrics.count(ATTEMPT_STARTED, ("m", "t"), ("custom",), value=3)
    metrics.record(CALL_DURATION, 0.5, ("m", "t", "OK"), ("",))
    for plugin in plugins:
        assert plugin.counts(ATTEMPT_STARTED) == {("m", "t", "custom"): 3}
        assert plugin.values(CALL_DURATION) == [(("m", "t", "OK", ""), 0.5)]


def test_gauges_are_observed_until_they_are_cancelled() -> None:
    plugins = [RecordingPlugin(), RecordingPlugin()]
    cancel = Metrics("t", plugins).watch(
        [XDS_CONNECTED], lambda report: report(XDS_CONNECTED, 1, ("t", "server"))
    )
    assert [plugin.gauges(XDS_CONNECTED) for plugin in plugins] == [{("t", "server"): 1}] * 2
    cancel()
    assert [plugin.gauges(XDS_CONNECTED) for plugin in plugins] == [{}] * 2


def test_an_exception_of_a_plugin_is_logged_and_does_not_propagate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = RecordingPlugin()
    with caplog.at_level(logging.ERROR, "proxyless.metrics"):
        metrics = Metrics("t", [Broken(), plugin])
        metrics.count(ATTEMPT_STARTED, ("m", "t"), ("",))
        metrics.watch([XDS_CONNECTED], lambda report: None)()
        assert choose_plugins("dns:///a", [Broken(), plugin]).plugins == (plugin,)
    assert plugin.count_of(ATTEMPT_STARTED) == 1
    assert caplog.text.count("raised\n") == 3


def test_threads_may_register_plugins_at_once() -> None:
    shares = [[RecordingPlugin() for _ in range(100)] for _ in range(8)]

    def call_in_threads(action: Callable[[RecordingPlugin], None]) -> None:
        def call(share: list[RecordingPlugin]) -> None:
            for each in share:
                action(each)

        threads = [Thread(target=call, args=[share]) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        call_in_threads(register_global)
        chosen = set(choose_plugins("dns:///a").plugins)
        call_in_threads(deregister_global)
    finally:
        sys.setswitchinterval(interval_s)
    assert chosen == {each for share in shares for each in share}
    assert choose_plugins("dns:///a") is NO_METRICS
