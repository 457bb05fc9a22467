"""Unit tests of proxyless.observe.flight.resources."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from proxyless.base import OK
from proxyless.controlplane import eds_cluster
from proxyless.observe.flight import resources as module
from proxyless.observe.flight.resources import ResourceLog
from proxyless.xds.view import ResourceDump, ResourceStatus

if TYPE_CHECKING:
    import pytest

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def dump(name: str, policy: str = "ROUND_ROBIN", version: str = "1") -> tuple[str, ResourceDump]:
    message = eds_cluster(name, lb_policy=policy).SerializeToString()
    return "a", ResourceDump(
        CLUSTER, name, ResourceStatus.ACKED, version, message, 0.0, OK, "", 0.0
    )


def changes(log: ResourceLog) -> list[tuple[str, str, bool]]:
    return [
        (each.fields["name"], each.fields["version"], each.fields["is_removed"])
        for each in log.entries()
    ]


def test_only_changes_are_added() -> None:
    log = ResourceLog(count(1).__next__)
    log.on_dumps(1.0, 1, [dump("web"), dump("cart")])
    log.on_dumps(2.0, 1, [dump("web", version="2"), dump("cart", "RING_HASH", "2")])
    # Another loop has resources of its own.
    log.on_dumps(3.0, 2, [])
    log.on_dumps(4.0, 1, [dump("cart", "RING_HASH", "2")])
    assert changes(log) == [
        ("web", "1", False),
        ("cart", "1", False),
        ("cart", "2", False),
        ("web", "", True),
    ]


def test_displaced_changes_are_the_state_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_BYTES_MAX", 600)
    log = ResourceLog(count(1).__next__)
    for number in range(10):
        policy = "RING_HASH" if number % 2 else "ROUND_ROBIN"
        log.on_dumps(float(number), 1, [dump("web"), dump("cart", policy, str(number))])
    found = changes(log)
    # The config is complete from the beginning, and the last change is there.
    assert found[0] == ("web", "1", False)
    assert found[-1] == ("cart", "9", False)
    assert [each[0] for each in found].count("web") == 1
    assert len(found) < 6
    assert log.left_out > 0
    numbers = [each.number for each in log.entries()]
    assert numbers == sorted(numbers)


def test_state_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_BYTES_MAX", 0)
    monkeypatch.setattr(module, "STATE_BYTES_MAX", 500)
    log = ResourceLog(count(1).__next__)
    log.on_dumps(1.0, 1, [dump(f"cluster-{number}") for number in range(50)])
    assert len(changes(log)) == 2
