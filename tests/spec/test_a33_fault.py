"""A33: fault injection through config selector and channel. tests/unit covers random choices."""

from __future__ import annotations

from typing import Final

import pytest

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.wire.status import status_of_http
from proxyless.xds.filters.fault import (
    FAULT_TYPE,
    FaultAbort,
    FaultConfig,
    FaultDelay,
    Percentage,
)
from proxyless.xds.filters.fault_filter import PROCESS_FAULTS
from proxyless.xds.resources.filter import FilterOverride, HttpFilter
from tests.worlds.meshes import MeshWorld
from tests.worlds.xds_resources import cluster, endpoints, host, hosts, listener, route

ALWAYS: Final = Percentage(100, 100)
A: Final = "10.0.0.1:80"
ABORTED: Final = Status(
    StatusCode.UNAVAILABLE, 'listener "orders": filter "fault": Fault injected (node id "node-1")'
)


def start(config: FaultConfig, override: FaultConfig | None = None) -> MeshWorld:
    """A mesh with this fault filter config."""
    world = MeshWorld()
    overrides = {} if override is None else {"fault": FilterOverride(override)}
    world.publish(
        listener(http_filters=(HttpFilter("fault", FAULT_TYPE, config),)),
        hosts(host(route("blue"), filter_overrides=overrides)),
        cluster("blue"),
        endpoints("blue", A),
    )
    world.channel.request_connection()
    world.settle()
    return world


def delay(delay_s: float | None, limit: int | None = None) -> FaultConfig:
    return FaultConfig(delay=FaultDelay(delay_s, ALWAYS), max_active_faults=limit)


def abort(code: StatusCode | None) -> FaultConfig:
    return FaultConfig(abort=FaultAbort(code, ALWAYS))


@pytest.mark.spec("A33-01")
def test_nothing_is_sent_before_the_delay_is_over() -> None:
    world = start(delay(2.0))
    _, observer = world.call()
    world.clock.advance(1.999)
    assert world.streams(A) == []
    world.clock.advance(0.001)
    world.respond_to_all()
    assert observer.status == OK


@pytest.mark.spec("A33-02", "A33-16")
def test_deadline_applies_while_an_rpc_is_delayed() -> None:
    world = start(delay(2.0, limit=1))
    _, observer = world.call(timeout_s=1.0)
    assert PROCESS_FAULTS.count == 1
    world.clock.advance(1.1)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED
    assert PROCESS_FAULTS.count == 0
    world.clock.advance(5.0)
    assert world.streams(A) == []


@pytest.mark.spec("A33-03")
def test_an_aborted_rpc_is_never_sent() -> None:
    world = start(abort(StatusCode.UNAVAILABLE))
    _, observer = world.call(wait_for_ready=True)
    assert observer.status == ABORTED
    assert world.streams(A) == []


@pytest.mark.spec("A33-06")
def test_rpc_ends_ok_and_is_not_sent_when_the_abort_status_is_ok() -> None:
    world = start(abort(StatusCode.OK))
    _, observer = world.call()
    assert observer.status == OK
    assert (observer.heads, observer.messages) == (0, [])
    assert world.streams(A) == []


@pytest.mark.spec("A33-04")
def test_rpc_is_aborted_after_its_delay_when_both_are_configured() -> None:
    world = start(FaultConfig(FaultDelay(2.0, ALWAYS), abort(StatusCode.UNAVAILABLE).abort))
    _, observer = world.call()
    world.clock.advance(1.999)
    assert observer.is_running
    world.clock.advance(0.001)
    assert observer.status == ABORTED


@pytest.mark.spec("A33-09", "A33-10", "A33-11")
def test_headers_set_delay_and_abort_when_the_config_allows_it() -> None:
    world = start(FaultConfig(FaultDelay(None, ALWAYS), FaultAbort(None, ALWAYS)))
    assert world.send_rpc() == A
    metadata: Metadata = (
        ("x-envoy-fault-delay-request", "500"),
        ("x-envoy-fault-abort-grpc-request", "14"),
    )
    _, observer = world.call(metadata=metadata)
    world.clock.advance(0.499)
    assert observer.is_running
    world.clock.advance(0.001)
    assert observer.status == ABORTED
    _, observer = world.call(metadata=(("x-envoy-fault-abort-request", "503"),))
    assert observer.status.code is status_of_http(503, "").code
    no_delay = (("x-envoy-fault-delay-request-percentage", "0"), metadata[0])
    assert world.send_rpc(metadata=no_delay) == A


@pytest.mark.spec("A33-15", "A33-16")
def test_active_faults_are_limited_across_all_channels() -> None:
    first, second = start(delay(2.0, limit=1)), start(delay(2.0, limit=1))
    call, _ = first.call()
    # The limit is reached, so other RPCs are not delayed.
    assert (first.send_rpc(), second.send_rpc()) == (A, A)
    call.cancel()
    second.call()
    assert second.streams(A) == []
    assert first.send_rpc() == A
    second.clock.advance(2.0)
    # A fault ends with its delay, not with its RPC.
    assert len(second.streams(A)) == 1
    assert PROCESS_FAULTS.count == 0
    second.respond_to_all()


@pytest.mark.spec("A33-18")
def test_override_of_the_virtual_host_replaces_the_fault_config() -> None:
    world = start(abort(StatusCode.UNAVAILABLE), FaultConfig())
    assert world.send_rpc() == A
    world = start(FaultConfig(), abort(StatusCode.UNAVAILABLE))
    assert world.call()[1].status == ABORTED
