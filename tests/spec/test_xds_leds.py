"""Collections of endpoints (LEDS): one subscription to many members, which change one by one."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.bootstrap import (
    DELTA,
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    Authority,
    Bootstrap,
    Node,
)
from proxyless.xds.client import ResourceStatus
from proxyless.xds.client import collection as collection_module
from proxyless.xds.client.response import DOES_NOT_EXIST_TIMEOUT_S
from tests.worlds.collections import DIRECTORY, GLOB, MEMBERS, member
from tests.worlds.delta_requests import reconnect, take
from tests.worlds.xds_clients import WatchRecorder, XdsClientWorld, server_config


def make_world(*features: str, fallback: bool = False, **options: Any) -> XdsClientWorld:  # noqa: ANN401
    servers = [server_config("a", DELTA, *features)]
    servers += [server_config("b", DELTA)] if fallback else []
    node, authorities = Node(id="edge-7"), {"mesh": Authority((), "")}
    bootstrap = Bootstrap(servers=tuple(servers), authorities=authorities, node=node)
    return XdsClientWorld(bootstrap=bootstrap, **options)


@pytest.fixture
def world() -> Iterator[XdsClientWorld]:
    made = make_world()
    yield made
    made.close()


def respond(
    world: XdsClientWorld,
    *members: tuple[str, str, bytes],
    removed: tuple[str, ...] = (),
    uri: str = "a",
) -> None:
    names = [f"{DIRECTORY}/{name}" for name in removed]
    world.server(uri).respond_delta(MEMBERS, *members, removed=names)


def shown(watcher: WatchRecorder) -> list[Any]:
    """Notifications: collections by the last parts of their members' names, statuses by code."""
    return [
        {name.rpartition("/")[2]: value for name, value in each.items()}
        if isinstance(each, Mapping)
        else each
        for each in watcher.take_codes()
    ]


@pytest.mark.spec("LE-04", "LE-05")
def test_one_changed_member_of_a_collection_is_decoded_alone(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    assert take(world) == [f"+{GLOB}"]
    respond(world, member("x"), member("y"), member("z"))
    assert shown(watcher) == [{"x": "v1", "y": "v1", "z": "v1"}]
    assert take(world) == ["ACK n"]
    before = MEMBERS.decoded
    respond(world, member("y", "v2", "2"))
    assert shown(watcher) == [{"x": "v1", "y": "v2", "z": "v1"}]
    respond(world, member("w"), removed=("x",))
    assert shown(watcher) == [{"y": "v2", "z": "v1", "w": "v1"}]
    assert MEMBERS.decoded == before + 2
    assert take(world) == ["ACK n", "ACK n"]


@pytest.mark.spec("LE-05")
def test_member_that_is_sent_again_unchanged_is_neither_decoded_nor_published(
    world: XdsClientWorld,
) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    watcher.take()
    before = MEMBERS.decoded
    respond(world, member("x", version="2"), member("y", version="2"))
    assert (shown(watcher), MEMBERS.decoded) == ([], before)


@pytest.mark.spec("LE-05")
def test_member_that_is_valid_and_not_used_is_in_no_collection(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y", "idle"))
    assert shown(watcher) == [{"x": "v1"}]
    respond(world, member("y"), member("x", "idle"))
    assert shown(watcher) == [{"y": "v1"}]
    assert take(world)[-1] == "ACK n"


@pytest.mark.spec("LE-06")
def test_members_of_other_collections_are_ignored(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    inside = world.watch(MEMBERS, f"{GLOB}?shard=1")
    respond(
        world,
        member("x"),
        member("deeper/x"),
        member("y?shard=1"),
        member("z?shard=2"),
        ("xdstp://mesh/test.v3.LbEndpoint/other/x", "1", b"bad"),
    )
    assert shown(watcher) == [{"x": "v1"}]
    assert shown(inside) == [{"y?shard=1": "v1"}]
    assert take(world)[-1] == "ACK n"


@pytest.mark.spec("LE-07")
def test_invalid_member_is_rejected_alone(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    watcher.take()
    respond(world, member("x", "bad", "2"), member("y", "v2", "2"), member("new", "bad"))
    assert shown(watcher) == [{"x": "v1", "y": "v2"}, ("ambient", "INVALID_ARGUMENT")]
    (nack,) = [each for each in world.server().take_requests() if each.HasField("error_detail")]
    assert nack.error_detail.message.count("is bad") == 2
    # A change of another member does not hide the error.
    respond(world, member("y", "v3", "3"))
    value, (_, error) = watcher.take()
    assert len(value) == 2
    assert "is bad" in error.details
    respond(world, member("x", "v2", "3"), removed=("new",))
    assert shown(watcher) == [{"x": "v2", "y": "v3"}]
    rows = {dump.name.rpartition("/")[2]: dump.status for dump in world.client.dump()}
    assert set(rows.values()) == {ResourceStatus.ACKED}


@pytest.mark.spec("LE-07")
def test_collection_without_a_valid_member_is_in_error(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x", "bad"))
    assert shown(watcher) == ["INVALID_ARGUMENT"]
    respond(world, member("x"))
    assert shown(watcher) == [{"x": "v1"}]


@pytest.mark.spec("LE-07")
def test_invalid_member_is_dropped_with_fail_on_data_errors() -> None:
    world = make_world(FAIL_ON_DATA_ERRORS, has_data_error_handling=True)
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    watcher.take()
    respond(world, member("x", "bad", "2"))
    assert shown(watcher) == [{"y": "v1"}, ("ambient", "INVALID_ARGUMENT")]
    world.close()


@pytest.mark.spec("LE-07")
@pytest.mark.parametrize(
    ("members", "removed", "error"),
    [
        ([member("x"), member("x", "v2")], (), "comes more than once"),
        ([member("x")], ("x",), "is both sent and removed"),
        ([member("x")], ("*",), "does not exist, but has members"),
        ([member("x", "bad")], ("*",), "does not exist, but has members"),
        ([("", "1", b"v1")], (), "has no name"),
        ([member("*")], (), "is the name of a collection"),
        ([member(str(number)) for number in range(6)], (), "wanted at most 5"),
    ],
)
def test_nonsense_of_a_server_is_rejected(
    world: XdsClientWorld, members: list[Any], removed: tuple[str, ...], error: str
) -> None:
    world.watch(MEMBERS, GLOB)
    world.server().take_requests()
    respond(world, *members, removed=removed)
    (nack,) = world.server().take_requests()
    assert error in nack.error_detail.message


@pytest.mark.spec("LE-08")
def test_new_stream_has_the_versions_of_members(world: XdsClientWorld) -> None:
    """The one that another resource would leave out is empty, so that it is sent or removed."""
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y", version="7"), member("bad", "bad"))
    watcher.take()
    reconnect(world)
    initial = f"{DIRECTORY}/bad= {DIRECTORY}/x=1 {DIRECTORY}/y=7"
    assert take(world)[-1] == f"+{GLOB} {initial}"
    respond(world, member("y", "v2", "8"), removed=("x", "bad"))
    assert [each for each in shown(watcher) if isinstance(each, dict)] == [{"y": "v2"}]
    reconnect(world)
    assert take(world)[-1] == f"+{GLOB} {DIRECTORY}/y="


@pytest.mark.spec("LE-08")
def test_first_response_replaces_the_collection_of_another_server() -> None:
    world = make_world(fallback=True)
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    other = world.watch(MEMBERS, f"{DIRECTORY}/more/*")
    world.server("a").is_up = False
    world.server("a").fail()
    world.settle()
    respond(world, member("z"), uri="b")
    assert shown(watcher)[-1] == {"z": "v1"}
    world.server("a").ads.end(Status(StatusCode.UNAVAILABLE, "gone"))
    world.server("a").recover()
    world.clock.advance(2)
    assert take(world) == [f"+{GLOB} +{DIRECTORY}/more/*"]
    respond(world, member("y", "v2"), member("more/m"))
    assert shown(watcher)[-1] == {"y": "v2"}
    assert shown(other)[-1] == {"m": "v1"}
    world.close()


@pytest.mark.spec("LE-08")
def test_first_response_replaces_a_collection_that_is_too_large_for_a_request(
    world: XdsClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection_module, "INITIAL_VERSIONS_MAX_BYTES", 100)
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"), member("z"))
    reconnect(world)
    assert take(world)[-1] == f"+{GLOB}"
    respond(world, member("z"))
    assert [each for each in shown(watcher) if isinstance(each, dict)][-1] == {"z": "v1"}


@pytest.mark.spec("LE-09")
def test_collection_that_is_removed_does_not_exist(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, removed=("*",))
    assert shown(watcher) == ["NOT_FOUND"]
    respond(world, member("x"), member("y"))
    respond(world, removed=("*",))
    respond(world, member("y"))
    assert shown(watcher) == [{"x": "v1", "y": "v1"}, "NOT_FOUND", {"y": "v1"}]


@pytest.mark.spec("LE-09")
@pytest.mark.parametrize("removed", [("x", "y", "*"), ("*", "x", "y"), ("x", "*", "y")])
def test_collection_is_removed_together_with_its_members(
    world: XdsClientWorld, removed: tuple[str, ...]
) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    world.server().take_requests()
    respond(world, removed=removed)
    assert shown(watcher) == [{"x": "v1", "y": "v1"}, "NOT_FOUND"]
    assert take(world) == ["ACK n"]


@pytest.mark.spec("LE-09")
def test_removed_members_go_even_if_deletions_are_ignored() -> None:
    world = make_world(IGNORE_RESOURCE_DELETION)
    watcher = world.watch(MEMBERS, GLOB)
    respond(world, member("x"), member("y"))
    respond(world, removed=("x", "unknown"))
    assert shown(watcher) == [{"x": "v1", "y": "v1"}, {"y": "v1"}]
    respond(world, removed=("*",))
    assert shown(watcher) == [("ambient", "NOT_FOUND")]
    world.close()


@pytest.mark.spec("LE-04")
def test_collection_that_does_not_come_in_time_does_not_exist(world: XdsClientWorld) -> None:
    watcher = world.watch(MEMBERS, GLOB)
    other = world.watch(world.routes, "r")
    world.server().respond_delta(world.routes, removed=["r"])
    assert other.take_codes() == ["NOT_FOUND"]
    world.clock.advance(DOES_NOT_EXIST_TIMEOUT_S)
    assert shown(watcher) == ["NOT_FOUND"]


@pytest.mark.spec("LE-04")
def test_collection_is_subscribed_to_again_after_its_watch_ended(world: XdsClientWorld) -> None:
    recorder = WatchRecorder()
    cancel = world.client.watch(MEMBERS, GLOB, recorder)
    world.clock.advance(0)
    respond(world, member("x"), member("y"))
    cancel()
    world.clock.advance(0)
    again = world.watch(MEMBERS, GLOB)
    respond(world, member("y"))
    assert shown(again) == [{"y": "v1"}]


@pytest.mark.spec("LE-13")
def test_dump_has_the_collection_and_its_members(world: XdsClientWorld) -> None:
    world.watch(MEMBERS, GLOB)
    respond(world, member("x", version="3"), member("y", "bad"))
    collection, x, y = world.client.dump()
    assert (collection.name, collection.status) == (GLOB, ResourceStatus.NACKED)
    assert not collection.serialized
    assert (x.version, x.serialized, x.status) == ("3", b"v1", ResourceStatus.ACKED)
    assert (y.serialized, y.status) == (b"", ResourceStatus.NACKED)
    assert "is bad" in y.error.details
