"""Unit tests of proxyless.front.call_route."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any, cast

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless.base import EMPTY_ATTRIBUTES, OK, Locality, Status, StatusCode
from proxyless.channel import Call
from proxyless.channel.call import last_pick_of
from proxyless.channel.call_attempts import Station
from proxyless.front.call_route import CallRoute, call_route
from proxyless.front.channel_api import attach_rpc, call_here
from proxyless.front.sync.calls import FinishedCall, InactiveRpcError
from proxyless.wire import StreamEnd
from proxyless.xds.config.attributes import LOCALITY
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS, ClusterTls
from tests.worlds.channels import UNAVAILABLE, UNPROCESSED, CallObserver, ChannelWorld

HERE = Locality("us", "us-a", "")


class RoutedWorld(ChannelWorld):
    """A channel whose only subchannel belongs to a cluster."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        subchannel: Any = self.subchannel
        subchannel.attributes = EMPTY_ATTRIBUTES.with_(LOCALITY, HERE).with_(
            UPSTREAM_TLS, ClusterTls({}, "orders")
        )

    def finished(self, call: Call) -> FinishedCall:
        finished = FinishedCall(StreamEnd(OK), (), b"reply")
        finished.rpc = call
        return finished


def test_a_call_has_no_route_before_it_is_sent_and_keeps_it_after_its_end() -> None:
    world = RoutedWorld()
    call, _ = world.call()
    assert call_route(world.finished(call)) == CallRoute(waits_for="resolving")
    world.connect()
    sent = CallRoute("127.0.0.1:80", "orders", HERE, attempts=1, config_generation=1)
    assert call_route(world.finished(call)) == sent
    world.streams[0].respond()
    assert call_route(world.finished(call)) == sent


def test_attempts_include_transparent_retries() -> None:
    world = RoutedWorld()
    world.connect()
    call, _ = world.call()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].respond()
    assert call_route(world.finished(call)).attempts == 2


def test_the_generation_is_that_of_the_calls_own_config() -> None:
    world = RoutedWorld()
    world.connect()
    first, _ = world.call()
    world.resolve()
    second, _ = world.call()
    routes = [call_route(world.finished(each)) for each in (first, second)]
    assert [each.config_generation for each in routes] == [1, 2]


def test_the_text_of_a_route_is_one_line_with_all_fields_in_order() -> None:
    assert str(CallRoute()) == "address=- cluster=- locality=- attempts=0 config_generation=0"
    route = CallRoute("10.0.0.7:80", "orders", HERE, 2, 3)
    assert str(route) == (
        "address=10.0.0.7:80 cluster=orders locality=us/us-a/ attempts=2 config_generation=3"
    )
    # Names of a control plane cannot forge another field or line.
    forged = CallRoute(cluster="a attempts=9\nb", locality=Locality('"'))
    assert str(forged).startswith('address=- cluster="a attempts=9\\nb" locality="\\"//" ')
    assert str(CallRoute(cluster="")).startswith('address=- cluster="" ')
    assert str(CallRoute(waits_for="resolving")).endswith("config_generation=0 waits_for=resolving")


def test_a_call_that_waits_names_the_reason() -> None:
    retries = {
        "maxAttempts": 2,
        "initialBackoff": "1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "methodConfig": [{"name": [{}], "retryPolicy": retries}],
    }
    world = RoutedWorld(service_config=config)
    call, _ = world.call()
    reasons = [call_route(world.finished(call)).waits_for]
    for step in (world.resolve, world.ready, lambda: world.streams[0].end(UNAVAILABLE)):
        step()
        reasons.append(call_route(world.finished(call)).waits_for)
    assert reasons == ["resolving", "connecting", None, "retry_backoff"]
    call.cancel()
    assert call_route(world.finished(call)).waits_for is None


def test_credentials_and_filters_are_reasons_to_wait() -> None:
    world = RoutedWorld()
    call = world.channel.call_type(world.channel, world.method, CallObserver())
    for station, reason in (
        (Station.CREDENTIALS, "credentials"),
        (Station.FILTERS, "http_filters"),
    ):
        call.station = station
        assert call_route(world.finished(call)).waits_for == reason


def test_a_route_cannot_be_changed() -> None:
    route: Any = CallRoute()
    with pytest.raises(FrozenInstanceError):
        route.attempts = 1


def test_an_error_has_the_route_of_its_call() -> None:
    world = RoutedWorld()
    world.connect()
    call, _ = world.call()
    error = InactiveRpcError(StreamEnd(Status(StatusCode.UNAVAILABLE, "x")))
    attach_rpc(error, call, call_here)
    assert call_route(error).cluster == "orders"


def test_a_copy_has_no_route_and_keeps_the_rest() -> None:
    world = RoutedWorld()
    call, _ = world.call()
    finished = world.finished(call)
    finished.add_note("kept")
    for copied in (copy.copy(finished), pickle.loads(pickle.dumps(finished))):
        assert copied.code() is grpc.StatusCode.OK
        assert copied.result() == b"reply"
        assert copied.__notes__ == ["kept"]
        with pytest.raises(ValueError, match="FinishedCall is no call of a channel of proxyless"):
            call_route(copied)


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(TypeError, match="call is str, wanted a call or an error of gRPC"):
        call_route("call")
    with pytest.raises(ValueError, match="RpcError is no call of a channel of proxyless"):
        call_route(grpc.RpcError())


def test_the_last_pick_does_not_refer_to_the_subchannel() -> None:
    world = RoutedWorld()
    world.connect()
    call, _ = world.call()
    pick = last_pick_of(call)
    values = [getattr(pick, field.name) for field in fields(pick)]
    assert cast("Any", world.subchannel) not in values


def test_the_function_is_exported() -> None:
    assert proxyless.call_route is call_route
    assert proxyless.CallRoute is CallRoute
