"""Unit tests of proxyless.otel, with OpenTelemetry's own SDK."""

import gc
import subprocess
import sys
from threading import Thread
from typing import Any
from weakref import ref

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import proxyless
from proxyless.metrics import Cancel, Instrument, Kind, Report, choose_plugins
from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    CALL_DURATION,
    INSTRUMENTS,
    LATENCY_BOUNDARIES,
    PICK_FIRST_DISCONNECTIONS,
    SUBCHANNEL_OPEN_CONNECTIONS,
    WRR_WEIGHTS,
    XDS_CONNECTED,
    XDS_RESOURCES,
)
from proxyless.otel import OpenTelemetryPlugin

TARGET = "dns:///orders:80"


class Collected:
    """A plugin, and the metrics that a reader collects from it."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the arguments of the plugin
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.plugin = OpenTelemetryPlugin(meter_provider=self.provider, **options)

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, instrument: Instrument) -> list[Any]:
        metric = self.metrics().get(instrument.name)
        return [] if metric is None else list(metric.data.data_points)


def measure(plugin: OpenTelemetryPlugin, instrument: Instrument, value: int = 1) -> None:
    """Record one measurement whose label values are the names of the labels."""
    if instrument.kind is Kind.GAUGE:
        plugin.watch([instrument], lambda report: report(instrument, value, instrument.labels))
    else:
        record = plugin.record if instrument.kind is Kind.HISTOGRAM else plugin.count
        record(instrument, value, instrument.labels, instrument.optional_labels)


# ---------------------------------------------------------------------------------------------
# What is collected


@pytest.mark.spec("A78-17")
def test_by_default_the_metrics_of_rpcs_are_collected() -> None:
    collected = Collected()
    for instrument in INSTRUMENTS:
        measure(collected.plugin, instrument)
    assert sorted(collected.metrics()) == [
        "grpc.client.attempt.duration",
        "grpc.client.attempt.rcvd_total_compressed_message_size",
        "grpc.client.attempt.sent_total_compressed_message_size",
        "grpc.client.attempt.started",
        "grpc.client.call.duration",
    ]


def test_each_metric_can_be_enabled_and_disabled() -> None:
    names = {each.name for each in INSTRUMENTS}
    collected = Collected(enable_metrics=names, disable_metrics=[CALL_DURATION.name])
    for instrument in INSTRUMENTS:
        measure(collected.plugin, instrument)
    found = collected.metrics()
    assert set(found) == names - {CALL_DURATION.name}
    for each in INSTRUMENTS:
        if each is not CALL_DURATION:
            assert (found[each.name].unit, found[each.name].description) == (
                each.unit,
                each.description,
            )


def test_metrics_can_be_enabled_and_disabled_by_patterns() -> None:
    collected = Collected(
        enable_metrics=["grpc.xds_client.*", "example.*"],
        disable_metrics=["*.resource_updates_*", "grpc.client.*"],
    )
    own = Instrument("example.picks", Kind.COUNTER, "{pick}", "", ())
    for instrument in (*INSTRUMENTS, own):
        measure(collected.plugin, instrument)
    assert sorted(collected.metrics()) == [
        "example.picks",
        "grpc.xds_client.connected",
        "grpc.xds_client.resources",
        "grpc.xds_client.server_failure",
    ]


@pytest.mark.spec("A94-07")
def test_a_pattern_does_not_enable_an_instrument_that_was_replaced() -> None:
    collected = Collected(enable_metrics=["*"])
    named = Collected(enable_metrics=[PICK_FIRST_DISCONNECTIONS.name])
    for instrument in INSTRUMENTS:
        measure(collected.plugin, instrument)
        measure(named.plugin, instrument)
    replaced = {each.name for each in INSTRUMENTS if each.is_replaced}
    assert set(collected.metrics()) == {each.name for each in INSTRUMENTS} - replaced
    assert replaced & set(named.metrics()) == {PICK_FIRST_DISCONNECTIONS.name}


def test_an_up_down_counter_may_be_counted_down() -> None:
    collected = Collected(enable_metrics=[SUBCHANNEL_OPEN_CONNECTIONS.name])
    for value in (3, -2):
        measure(collected.plugin, SUBCHANNEL_OPEN_CONNECTIONS, value)
    (point,) = collected.points(SUBCHANNEL_OPEN_CONNECTIONS)
    assert point.value == 1
    assert not collected.metrics()[SUBCHANNEL_OPEN_CONNECTIONS.name].data.is_monotonic


def test_a_histogram_has_its_boundaries() -> None:
    collected = Collected(enable_metrics=[WRR_WEIGHTS.name])
    measure(collected.plugin, ATTEMPT_DURATION)
    measure(collected.plugin, WRR_WEIGHTS)
    (point,) = collected.points(ATTEMPT_DURATION)
    assert tuple(point.explicit_bounds) == LATENCY_BOUNDARIES
    # A78 specifies none, so those of the SDK are used.
    (point,) = collected.points(WRR_WEIGHTS)
    assert tuple(point.explicit_bounds) != LATENCY_BOUNDARIES
    assert point.count == 1


def test_the_meter_has_our_name_and_version() -> None:
    collected = Collected()
    measure(collected.plugin, ATTEMPT_STARTED)
    data = collected.reader.get_metrics_data()
    assert data is not None
    scope = data.resource_metrics[0].scope_metrics[0].scope
    assert (scope.name, scope.version) == ("proxyless", proxyless.__version__)


def test_an_instrument_of_an_application_is_collected_by_its_definition() -> None:
    own = Instrument("example.picks", Kind.COUNTER, "{pick}", "", ("caller",), is_default=True)
    hidden = Instrument("example.more", Kind.COUNTER, "{pick}", "", ("caller",))
    collected = Collected()
    measure(collected.plugin, own)
    measure(collected.plugin, hidden)
    assert set(collected.metrics()) == {"example.picks"}
    enabled = Collected(enable_metrics=["example.more"])
    measure(enabled.plugin, hidden)
    assert set(enabled.metrics()) == {"example.more"}


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("enable_metrics", "metric 'grpc.no' is not known, wanted one of grpc.client"),
        ("disable_metrics", "metric 'grpc.no' is not known, wanted one of grpc.client"),
        ("optional_labels", "label 'grpc.no' is not known, wanted one of grpc.client.call.custom"),
    ],
)
def test_an_unknown_name_with_the_prefix_of_grpc_raises(option: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Collected(**{option: ["grpc.no"]})
    with pytest.raises(ValueError, match="is not known"):
        Collected(**{option: ["proxyless.no*"]})
    with pytest.raises(TypeError, match="wanted a list of names"):
        Collected(**{option: "grpc.client.call.duration"})


# ---------------------------------------------------------------------------------------------
# Labels


@pytest.mark.parametrize(
    "optional",
    [[], ["grpc.lb.locality"], ["grpc.lb.backend_service"], list(ATTEMPT_SENT.optional_labels)],
)
def test_optional_labels_are_recorded_if_enabled(optional: list[str]) -> None:
    collected = Collected(optional_labels=optional)
    measure(collected.plugin, ATTEMPT_SENT)
    (point,) = collected.points(ATTEMPT_SENT)
    wanted = {"grpc.method", "grpc.target", "grpc.status", *optional}
    assert dict(point.attributes) == {name: name for name in wanted}


def test_a_generic_method_is_other_unless_its_filter_returns_true() -> None:
    plain = OpenTelemetryPlugin()
    assert plain.label_method("/a.B/C", is_registered=False) == "other"
    assert plain.label_method("/a.B/C", is_registered=True) == "a.B/C"
    names: list[str] = []

    def is_allowed(name: str) -> bool:
        names.append(name)
        return name == "a.B/C"

    filtered = OpenTelemetryPlugin(generic_method_attribute_filter=is_allowed)
    assert filtered.label_method("/a.B/C", is_registered=False) == "a.B/C"
    assert filtered.label_method("/a.B/D", is_registered=False) == "other"
    assert filtered.label_method("/a.B/D", is_registered=True) == "a.B/D"
    assert names == ["a.B/C", "a.B/D"]


def test_a_target_is_other_if_its_filter_returns_false() -> None:
    assert OpenTelemetryPlugin().label_target(TARGET) == TARGET
    filtered = OpenTelemetryPlugin(target_attribute_filter=lambda target: "orders" in target)
    assert filtered.label_target(TARGET) == TARGET
    assert filtered.label_target("ipv4:10.0.0.1:80") == "other"


# ---------------------------------------------------------------------------------------------
# Channels


def test_without_a_provider_no_channel_is_measured() -> None:
    assert not choose_plugins(TARGET, [OpenTelemetryPlugin()]).active


def test_a_channel_filter_selects_channels() -> None:
    plugin = Collected(channel_filter=lambda target: target.startswith("xds:")).plugin
    assert choose_plugins("xds:///orders", [plugin]).active
    assert not choose_plugins(TARGET, [plugin]).active


def test_a_plugin_is_registered_once_and_deregistered() -> None:
    plugin = Collected().plugin
    with plugin:
        assert choose_plugins(TARGET).plugins == (plugin,)
        with pytest.raises(RuntimeError, match="already"):
            plugin.register_global()
    assert not choose_plugins(TARGET).active
    with pytest.raises(RuntimeError, match="is not registered"):
        plugin.deregister_global()


def test_several_plugins_may_be_registered() -> None:
    first, second = Collected().plugin, Collected().plugin
    with first, second:
        assert choose_plugins(TARGET).plugins == (first, second)


# ---------------------------------------------------------------------------------------------
# Gauges


def test_gauges_are_observed_at_each_collection() -> None:
    collected = Collected(enable_metrics=[XDS_CONNECTED.name])
    value = 1

    def observe(report: Report) -> None:
        report(XDS_CONNECTED, value, ("t", "server"))
        report(XDS_RESOURCES, 5, ("t", "#old", "acked", "Listener"))

    cancel = collected.plugin.watch([XDS_CONNECTED, XDS_RESOURCES], observe)
    for value in (1, 0):
        (point,) = collected.points(XDS_CONNECTED)
        assert point.value == value
        assert dict(point.attributes) == {"grpc.target": "t", "grpc.xds.server": "server"}
    assert collected.points(XDS_RESOURCES) == []
    cancel()
    cancel()
    assert collected.points(XDS_CONNECTED) == []


def test_gauges_of_several_clients_are_collected_together() -> None:
    collected = Collected(enable_metrics=[XDS_CONNECTED.name])

    def watch(server: str) -> None:
        def observe(report: Report) -> None:
            report(XDS_CONNECTED, 1, ("t", server))

        collected.plugin.watch([XDS_CONNECTED], observe)

    threads = [Thread(target=watch, args=(f"s{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    servers = {point.attributes["grpc.xds.server"] for point in collected.points(XDS_CONNECTED)}
    assert servers == {f"s{number}" for number in range(8)}


# ---------------------------------------------------------------------------------------------
# Plugins with the same provider


def test_rpcs_of_every_plugin_of_a_provider_are_collected() -> None:
    collected = Collected()
    second = OpenTelemetryPlugin(
        meter_provider=collected.provider, optional_labels=["grpc.client.call.custom"]
    )
    for plugin in (collected.plugin, second, second):
        plugin.bind((ATTEMPT_STARTED,), ("method", TARGET), ("mine",))((1,))
    points = collected.points(ATTEMPT_STARTED)
    values = {point.attributes.get("grpc.client.call.custom"): point.value for point in points}
    assert values == {None: 1, "mine": 2}


def test_gauges_of_every_plugin_of_a_provider_are_collected() -> None:
    collected = Collected(enable_metrics=[XDS_CONNECTED.name])
    second = OpenTelemetryPlugin(
        meter_provider=collected.provider, enable_metrics=["grpc.xds_client.*"]
    )
    unwatched = OpenTelemetryPlugin(meter_provider=collected.provider)

    def watch(plugin: OpenTelemetryPlugin, server: str) -> Cancel:
        def observe(report: Report) -> None:
            report(XDS_CONNECTED, 1, ("t", server))

        return plugin.watch([XDS_CONNECTED], observe)

    def servers() -> set[str]:
        points = collected.points(XDS_CONNECTED)
        return {point.attributes["grpc.xds.server"] for point in points}

    cancel = watch(collected.plugin, "first")
    watch(second, "second")
    watch(unwatched, "third")
    assert servers() == {"first", "second"}
    cancel()
    assert servers() == {"second"}


def test_provider_is_freed_with_its_plugins() -> None:
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    plugin = OpenTelemetryPlugin(meter_provider=provider, enable_metrics=[XDS_CONNECTED.name])
    measure(plugin, XDS_CONNECTED)
    plugin.bind((ATTEMPT_STARTED,), ("method", TARGET), ("",))((1,))
    freed = ref(provider)
    del provider, plugin
    gc.collect()
    assert freed() is None


# ---------------------------------------------------------------------------------------------
# Imports


def test_opentelemetry_is_imported_by_proxyless_otel_only() -> None:
    code = (
        "import sys, proxyless, proxyless.aio, proxyless.sync, proxyless.admin; "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert proxyless.otel is sys.modules["proxyless.otel"]


def test_without_opentelemetry_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import proxyless\n"
        "try:\n    proxyless.otel\n"
        "except ImportError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert text == "proxyless.otel needs opentelemetry-api: pip install 'proxyless[otel]'\n"
