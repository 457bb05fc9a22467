"""Incremental xDS: a server with the feature `delta` sends only what has changed."""

from collections.abc import Iterator

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.bootstrap import DELTA, FAIL_ON_DATA_ERRORS
from proxyless.xds.client import ResourceStatus
from proxyless.xds.client.codec import ADS_PATH, DELTA_PATH
from tests.worlds.delta_requests import reconnect, show, take
from tests.worlds.xds_clients import WatchRecorder, XdsClientWorld, server_config, text

GONE = Status(StatusCode.UNAVAILABLE, "gone")


@pytest.fixture
def world() -> Iterator[XdsClientWorld]:
    made = XdsClientWorld(server_config("a", DELTA))
    yield made
    made.close()


@pytest.mark.spec("DX-01")
def test_path_is_that_of_the_variant(world: XdsClientWorld) -> None:
    world.watch(world.routes, "x")
    assert world.server().ads.path == DELTA_PATH
    other = XdsClientWorld(server_config("a"))
    other.watch(other.routes, "x")
    assert other.server().ads.path == ADS_PATH
    other.close()


@pytest.mark.spec("DX-02", "DX-04")
def test_changes_of_subscriptions_and_resources_are_sent_alone(world: XdsClientWorld) -> None:
    x = world.watch(world.routes, "x")
    (first,) = world.server().take_requests()
    assert show(first) == "+x"
    assert first.node.id == "edge-7"
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    assert x.take() == ["v1"]
    (answer,) = world.server().take_requests()
    assert show(answer) == "ACK n"
    assert not answer.HasField("node")
    y = world.watch(world.routes, "y")
    assert take(world) == ["+y"]
    world.server().respond_delta(world.routes, ("y", "1", text("y")), nonce="m")
    assert (x.take(), y.take()) == ([], ["v1"])
    assert take(world) == ["ACK m"]
    world.server().respond_delta(world.routes, ("x", "2", text("x", "v2")))
    assert (x.take(), y.take()) == (["v2"], [])
    assert {dump.name: dump.version for dump in world.client.dump()} == {"x": "2", "y": "1"}


@pytest.mark.spec("DX-05")
def test_resource_is_not_missing_when_a_response_does_not_have_it(world: XdsClientWorld) -> None:
    """State of the world would have deleted the listener."""
    x, y = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    world.server().respond_delta(world.listeners, ("x", "1", text("x")), ("y", "1", text("y")))
    x.take(), y.take()
    world.server().respond_delta(world.listeners, ("x", "2", text("x", "v2")))
    assert (x.take(), y.take()) == (["v2"], [])


@pytest.mark.spec("DX-06")
@pytest.mark.parametrize("kind", ["listeners", "routes"])
def test_removed_resource_does_not_exist(world: XdsClientWorld, kind: str) -> None:
    """Of every type: only state of the world cannot express the removal of route configs."""
    resource_type = getattr(world, kind)
    x = world.watch(resource_type, "x")
    world.server().respond_delta(resource_type, ("x", "1", text("x")))
    world.server().respond_delta(resource_type, removed=["x", "unwatched"])
    assert x.take_codes() == ["v1", "NOT_FOUND"]
    world.server().respond_delta(resource_type, ("x", "1", text("x")))
    assert x.take() == ["v1"]
    assert take(world) == ["+x", "ACK n", "ACK n", "ACK n"]


@pytest.mark.spec("DX-06")
def test_resource_that_is_removed_twice_does_not_exist(world: XdsClientWorld) -> None:
    x = world.watch(world.routes, "x")
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    world.server().respond_delta(world.routes, removed=["x", "x"])
    assert x.take_codes() == ["v1", "NOT_FOUND"]
    assert take(world) == ["+x", "ACK n", "ACK n"]


@pytest.mark.spec("DX-06")
def test_resource_that_does_not_exist_is_known_at_once(world: XdsClientWorld) -> None:
    x = world.watch(world.routes, "x")
    world.server().respond_delta(world.routes, removed=["x"])
    (status,) = x.take()
    assert status.code is StatusCode.NOT_FOUND
    assert 'does not exist (not known by xds server "a")' in status.details
    (dump,) = world.client.dump()
    assert dump.status is ResourceStatus.DOES_NOT_EXIST


@pytest.mark.spec("DX-08")
def test_new_stream_has_the_versions_but_for_one(world: XdsClientWorld) -> None:
    """The server has one resource to send, so that its answer shows that it is there."""
    recorders = [world.watch(world.routes, name) for name in "wxyz"]
    resources = [(name, "1", text(name)) for name in "wxy"]
    world.server().respond_delta(world.routes, *resources)
    reconnect(world)
    assert take(world) == ["+w +x +y +z w= x=1 y=1"]
    world.server().respond_delta(world.routes, ("w", "1", text("w")), ("y", "2", text("y", "v2")))
    values = [[each for each in recorder.take() if isinstance(each, str)] for recorder in recorders]
    assert values == [["v1"], ["v1"], ["v1", "v2"], []]
    reconnect(world)
    assert take(world)[-1] == "+w +x +y +z w= x=1 y=2"


@pytest.mark.spec("DX-08")
def test_new_stream_asks_for_a_resource_that_it_has(world: XdsClientWorld) -> None:
    """The server may be silent about another one, which it does not have."""
    world.watch(world.listeners, "unknown"), world.watch(world.routes, "x")
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    reconnect(world)
    assert take(world)[-2:] == ["+unknown", "+x x="]


@pytest.mark.spec("DX-08")
@pytest.mark.parametrize("outage_s", [0.0, 5.0], ids=["before", "while the stream waits"])
def test_new_stream_has_no_version_of_a_resource_of_another_server(outage_s: float) -> None:
    """The other server answers before the new stream is opened, or before it has a connection."""
    world = XdsClientWorld(server_config("a", DELTA), server_config("b", DELTA))
    first, x = world.watch(world.routes, "first"), world.watch(world.routes, "x")
    world.server("a").respond_delta(
        world.routes, ("first", "1", text("first")), ("x", "1", text("x"))
    )
    y = world.watch(world.routes, "y")
    world.server("a").is_up = False
    world.server("a").ads.end(GONE)
    world.server("a").fail()
    world.clock.advance(outage_s)
    # `y` is not there yet, so the next server is used.
    resources = [(name, "1", text(name, "of b")) for name in ("first", "x", "y")]
    world.server("b").respond_delta(world.routes, *resources)
    assert [each.take()[-1] for each in (first, x, y)] == ["of b"] * 3
    world.server("a").recover()
    world.clock.advance(200)
    assert take(world, "a")[-1] == "+first +x +y first= x= y="
    world.close()


@pytest.mark.spec("DX-02")
def test_watch_that_ends_and_starts_gets_the_resource_again(world: XdsClientWorld) -> None:
    world.watch(world.routes, "other")
    cancel = world.client.watch(world.routes, "x", WatchRecorder())
    world.settle()
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    cancel()
    world.settle()
    assert take(world) == ["+other", "+x", "ACK n", "-x"]
    x = world.watch(world.routes, "x")
    assert take(world) == ["+x"]
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    assert x.take() == ["v1"]


# Invalid responses: a NACK, and the config in use stays


NONSENSE = {
    "invalid": ([("x", "2", text("x", "bad"))], [], "value is bad"),
    "not decodable": ([("x", "2", b"{")], [], "is not JSON"),
    "without a name": ([("", "2", text("x"))], [], 'has the name "x" inside'),
    "another name inside": ([("x", "2", text("y"))], [], 'has the name "y" inside'),
    "twice": (
        [("x", "2", text("x", "v2")), ("x", "3", text("x", "v3"))],
        [],
        "more than once",
    ),
    "sent and removed": (
        [("x", "2", text("x", "v2"))],
        ["x"],
        "both sent and removed",
    ),
}


@pytest.mark.spec("DX-07", "DX-10")
@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_rejected_resource_by_resource(world: XdsClientWorld, case: str) -> None:
    resources, removed, error = NONSENSE[case]
    x, z = world.watch(world.routes, "x"), world.watch(world.routes, "z")
    world.server().respond_delta(world.routes, ("x", "1", text("x")), ("z", "1", text("z")))
    x.take(), z.take(), take(world)
    world.server().respond_delta(
        world.routes, *resources, ("z", "2", text("z", "v2")), removed=removed
    )
    (nack,) = world.server().take_requests()
    assert show(nack) == "NACK n"
    assert error in nack.error_detail.message
    # The valid resource counts; the other one is in use as before, or as first sent.
    assert z.take() == ["v2"]
    assert not [each for each in x.take() if isinstance(each, Status)]
    reconnect(world)
    (again,) = take(world)
    assert again.startswith("+x +z")
    assert again.endswith("z=2")


def test_type_that_was_not_requested_is_ignored(world: XdsClientWorld) -> None:
    x = world.watch(world.routes, "x")
    take(world)
    world.server().respond_delta(world.listeners, ("x", "1", text("x")))
    assert take(world) == []
    assert x.take() == []


def test_bytes_that_are_no_response_are_ignored(world: XdsClientWorld) -> None:
    x = world.watch(world.routes, "x")
    world.server().respond_delta(world.routes, ("x", "1", text("x")))
    world.server().ads.send_to_client(b"\xff\xff")
    world.settle()
    world.server().respond_delta(world.routes, ("x", "2", text("x", "v2")))
    assert x.take() == ["v1", "v2"]


@pytest.mark.spec("DX-06")
def test_removal_drops_or_keeps_the_resource_as_state_of_the_world_does() -> None:
    for features, expected in (
        ((DELTA,), ["v1", ("ambient", "NOT_FOUND")]),
        ((DELTA, FAIL_ON_DATA_ERRORS), ["v1", "NOT_FOUND"]),
    ):
        world = XdsClientWorld(server_config("a", *features), has_data_error_handling=True)
        x = world.watch(world.listeners, "x")
        world.server().respond_delta(world.listeners, ("x", "1", text("x")))
        world.server().respond_delta(world.listeners, removed=["x"])
        assert x.take_codes() == expected
        world.close()


@pytest.mark.spec("DX-03")
def test_wildcard_cannot_be_watched(world: XdsClientWorld) -> None:
    (status,) = world.watch(world.listeners, "*").take()
    assert status.code is StatusCode.UNAVAILABLE
    assert "wildcard" in status.details
    world.watch(world.routes, "x")
    assert take(world) == ["+x"]
