"""Unit tests of proxyless.sim.replay.story."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import IpAddress
from proxyless.controlplane import (
    CLUSTER,
    dns_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from proxyless.observe.flight import Entry, Recording
from proxyless.sim.replay.story import (
    BackendStep,
    NameStep,
    RpcStep,
    UnsuitableRecordingError,
    WakeStep,
    make_story,
)

A = IpAddress("10.0.0.1", 80)
HEADER = {"channels": [{"id": 1, "target": "xds:///api", "loop": 1}]}


def resource(time: float, message: Any, **fields: object) -> Entry:  # noqa: ANN401 - a message
    kind = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    name = getattr(message, "name", "") or message.cluster_name
    value = b64encode(message.SerializeToString()).decode()
    known = {"scope": "xds:///api", "type_url": kind, "name": name, "value": value, "version": "1"}
    return Entry(0, time, 1, "resource", {**known, **fields})


CONFIG = (
    resource(100.0, listener("api", [route(cluster="web")])),
    resource(100.0, endpoints("web", ["10.0.0.1:80", "[::1]:80"])),
)


def recording(*entries: Entry, header: Any = HEADER) -> Recording:  # noqa: ANN401
    return Recording(header, (*CONFIG, *entries), 0, is_cut=False)


def state(time: float, name: str, address: str = "10.0.0.1:80") -> Entry:
    return Entry(0, time, 1, "subchannel.state", {"address": address, "state": name})


def test_config_steps_have_all_resources_of_their_time() -> None:
    removed = resource(103.0, endpoints("web", []), value="", is_removed=True)
    story = make_story(recording(removed))
    assert [(step.at_s, len(step.resources)) for step in story.configs] == [(0.0, 2), (3.0, 1)]
    assert story.addresses == {A, IpAddress("::1", 80)}
    assert story.targets == {"api": "xds:///api"}


def test_backend_is_up_when_a_connection_succeeds_and_down_when_it_fails_or_is_lost() -> None:
    story = make_story(
        recording(
            state(101.0, "CONNECTING"),
            state(101.1, "READY"),
            state(105.0, "IDLE"),
            state(105.0, "CONNECTING"),
            state(105.2, "TRANSIENT_FAILURE"),
            state(106.0, "CONNECTING"),
            state(126.0, "TRANSIENT_FAILURE"),
            state(127.0, "CONNECTING"),
            state(127.1, "READY"),
            state(130.0, "SHUTDOWN"),
            # Of a control plane, so it is no backend.
            state(101.0, "CONNECTING", "10.9.9.9:443"),
            state(101.0, "CONNECTING", "nonsense"),
        )
    )
    assert story.backends == (
        BackendStep(1.0, A, is_up=True),
        BackendStep(5.0, A, is_up=False),
        BackendStep(5.0, A, is_up=False),
        BackendStep(6.0, A, is_up=False, is_silent=True),
        BackendStep(27.0, A, is_up=True, is_retried=True),
    )


def test_rpcs_and_wakes_are_those_of_xds_targets() -> None:
    fields = {"method": "/a/b", "cluster": "web", "address": None, "took_s": 0.5}
    status = {"code": "UNAVAILABLE", "details": "down"}
    story = make_story(
        recording(
            Entry(0, 102.0, 1, "rpc", {**fields, "channel": 1, "status": status}),
            Entry(0, 102.0, 1, "rpc", {**fields, "channel": 9, "status": status}),
            Entry(0, 102.0, 1, "rpc", {"channel": 1}),
            Entry(0, 102.0, 1, "rpc", {**fields, "channel": 1, "status": status, "method": "/\n"}),
            Entry(0, 102.0, 1, "rpc", {**fields, "channel": 1, "status": status, "took_s": inf}),
            Entry(0, 103.0, 1, "channel.state", {"target": "xds:///api", "state": "CONNECTING"}),
            Entry(0, 104.0, 1, "channel.state", {"target": "other", "state": "CONNECTING"}),
        )
    )
    assert story.rpcs == (RpcStep(1.5, 2.0, "xds:///api", "/a/b", "web", "", "UNAVAILABLE"),)
    assert WakeStep(3.0, "xds:///api") in story.wakes


def test_names_are_those_of_dns_clusters_with_their_answers() -> None:
    def answer(host: str, endpoints: object) -> Entry:
        return Entry(0, 101.0, 1, "dns.answer", {"host": host, "endpoints": endpoints})

    story = make_story(
        recording(
            resource(100.0, dns_cluster("far", "far.example", 8080)),
            answer("far.example", ["10.7.0.1:8080", "nonsense"]),
            answer("control.example", ["10.9.9.9:443"]),
            answer("far.example", {"code": "UNAVAILABLE", "details": "no answer"}),
        )
    )
    assert story.names == (
        NameStep(1.0, "far.example", ("10.7.0.1",)),
        NameStep(1.0, "far.example", ()),
    )
    assert IpAddress("10.7.0.1", 8080) in story.addresses


def test_tls_is_removed_from_clusters() -> None:
    cluster = eds_cluster("web")
    cluster.transport_socket.name = "envoy.transport_sockets.tls"
    story = make_story(recording(resource(100.0, cluster)))
    (found,) = [each for each in story.configs[-1].resources if each.type_url == CLUSTER]
    assert found.message() == eds_cluster("web")


@pytest.mark.parametrize(
    ("unsuitable", "reason"),
    [
        (Recording(HEADER, (), 0, is_cut=False), "no resources"),
        (recording(header={}), "no channel with an xDS target"),
        (recording(resource(101.0, endpoints("xdstp://a/b", []))), "several authorities"),
        (recording(resource(101.0, endpoints("web", []), value="?")), "cannot be read"),
        (recording(state(10.0**9, "READY")), "more than a week"),
        (recording(resource(101.0, endpoints("web", []), value="////")), "cannot be read"),
        (recording(header={"channels": [{"id": "1"}, 7]}), "no channel with an xDS target"),
        (recording(header={"channels": 7}), "no channel with an xDS target"),
    ],
)
def test_reason_is_given_when_a_recording_cannot_be_re_run(
    unsuitable: Recording, reason: str
) -> None:
    with pytest.raises(UnsuitableRecordingError, match=reason):
        make_story(unsuitable)


def test_what_the_re_run_cannot_show_is_noted() -> None:
    ejected = Entry(0, 101.0, 1, "outlier_detection.ejected", {})
    found = make_story(Recording(HEADER, (*CONFIG, ejected), 4, is_cut=True))
    assert [note.partition(" ")[0] for note in found.notes] == ["4", "the", "ejections"]


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -1, 1e308, "", "\x1b", [], {}, [1], True, "10.0.0.1:99999999", "[::1]:0", "////"]
)
SAMPLES = (
    *CONFIG,
    resource(100.0, dns_cluster("far", "far.example", 8080)),
    state(101.0, "CONNECTING"),
    state(101.1, "READY"),
    Entry(0, 101.2, 1, "dns.answer", {"host": "far.example", "endpoints": ["10.7.0.1:8080"]}),
    Entry(0, 101.3, 1, "channel.state", {"target": "xds:///api", "state": "CONNECTING"}),
    Entry(0, 102.0, 1, "rpc", {"channel": 1, "method": "/a/b", "cluster": "web", "took_s": 0.1,
                               "address": None, "status": {"code": "OK", "details": ""}}),
)  # fmt: skip


@given(data=st.data())
def test_changed_recording_is_planned_or_refused(data: st.DataObject) -> None:
    changed = []
    for entry in SAMPLES:
        fields = dict(entry.fields)
        for key in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=2)):
            fields[key] = data.draw(JUNK)
        changed.append(replace(entry, fields=fields))
    with suppress(UnsuitableRecordingError):
        make_story(Recording(HEADER, tuple(changed), 0, is_cut=False))
