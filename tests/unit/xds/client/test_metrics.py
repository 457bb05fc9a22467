"""Unit tests of proxyless.xds.client.metrics; metrics of a client are in the spec test of A78."""

import gc
import os

import pytest

from proxyless.metrics import NO_METRICS
from proxyless.metrics.instruments import (
    XDS_CONNECTED,
    XDS_RESOURCES,
    XDS_UPDATES_INVALID,
    XDS_UPDATES_VALID,
)
from proxyless.xds.client.api import ResourceStatus
from proxyless.xds.client.cache import Entry
from proxyless.xds.client.metrics import ClientMetrics, name_cache_state, name_resource_type
from tests.worlds.stats_plugins import TARGET, RecordingPlugin
from tests.worlds.xds_clients import TextType, XdsClientWorld


class FakeClient:
    """Servers and entries for the gauges."""

    def __init__(self) -> None:
        self.servers = [("a", True), ("b", False)]
        kind = TextType("Listener")
        self.entries = [Entry(kind, "x", None), Entry(kind, "y", None), Entry(kind, "z", "auth")]

    def reachable_servers(self) -> list[tuple[str, bool]]:
        return self.servers

    def all_entries(self) -> list[Entry]:
        return self.entries


@pytest.mark.parametrize(
    ("status", "fresh", "cached"),
    [
        ("REQUESTED", "requested", "requested"),
        ("ACKED", "acked", "acked"),
        ("NACKED", "nacked", "nacked_but_cached"),
        ("DOES_NOT_EXIST", "does_not_exist", "does_not_exist_but_cached"),
        ("RECEIVED_ERROR", "received_error", "received_error_but_cached"),
        ("TIMEOUT", "timeout", "timeout"),
    ],
)
def test_cache_states_have_the_names_of_a78_and_a88(status: str, fresh: str, cached: str) -> None:
    assert name_cache_state(ResourceStatus[status], has_resource=False) == fresh
    assert name_cache_state(ResourceStatus[status], has_resource=True) == cached


def test_resource_type_label_has_no_prefix() -> None:
    url = "type.googleapis.com/envoy.config.listener.v3.Listener"
    assert name_resource_type(url) == "envoy.config.listener.v3.Listener"


def test_gauges_have_the_state_of_the_client_when_they_are_read() -> None:
    plugin, client = RecordingPlugin(), FakeClient()
    metrics = ClientMetrics(plugin.metrics, client)
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 1, (TARGET, "b"): 0}
    assert plugin.gauges(XDS_RESOURCES) == {
        (TARGET, "#old", "requested", "test.v3.Listener"): 2,
        (TARGET, "auth", "requested", "test.v3.Listener"): 1,
    }
    client.servers = [("a", False)]
    client.entries[0].on_valid("v", b"v", "1", 0.0)
    assert plugin.gauges(XDS_CONNECTED) == {(TARGET, "a"): 0}
    assert plugin.gauges(XDS_RESOURCES)[TARGET, "#old", "acked", "test.v3.Listener"] == 1
    metrics.close()
    assert plugin.gauges(XDS_CONNECTED) == plugin.gauges(XDS_RESOURCES) == {}


def test_child_of_a_fork_does_not_report_the_gauges_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin, client = RecordingPlugin(), FakeClient()
    metrics = ClientMetrics(plugin.metrics, client)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert plugin.gauges(XDS_CONNECTED) == plugin.gauges(XDS_RESOURCES) == {}
    monkeypatch.undo()
    assert plugin.gauges(XDS_CONNECTED)
    metrics.close()


def test_gauges_do_not_keep_their_client_alive() -> None:
    plugin, client = RecordingPlugin(), FakeClient()
    ClientMetrics(plugin.metrics, client)
    del client
    gc.collect()
    assert plugin.gauges(XDS_CONNECTED) == {}


def test_counters_are_not_incremented_by_zero() -> None:
    plugin, client = RecordingPlugin(), FakeClient()
    metrics = ClientMetrics(plugin.metrics, client)
    metrics.on_response("a", "type.googleapis.com/t.T", 3, 0)
    metrics.on_response("a", "type.googleapis.com/t.T", 0, 2)
    assert plugin.counts(XDS_UPDATES_VALID) == {(TARGET, "a", "t.T"): 3}
    assert plugin.counts(XDS_UPDATES_INVALID) == {(TARGET, "a", "t.T"): 2}
    assert len(plugin.order) == 2


def test_metrics_are_no_ops_without_plugins() -> None:
    metrics = ClientMetrics(NO_METRICS, FakeClient())
    metrics.on_response("a", "t", 1, 1)
    metrics.on_server_failure("a")
    metrics.close()


def test_watches_may_change_while_gauges_are_read() -> None:
    world = XdsClientWorld()
    for name in ("x", "y"):
        world.watch(world.listeners, name)
    entries = world.client.all_entries()
    names = [next(entries).name]
    # Meanwhile, another resource and another type are added on the client's loop.
    world.watch(world.listeners, "z")
    world.watch(world.routes, "r")
    names += [entry.name for entry in entries]
    assert names[:2] == ["x", "y"]
    assert world.client.reachable_servers() == [("a", True)]
    world.close()
