"""Unit tests of the state of a watched resource, and of the decoded-resource cache."""

from collections.abc import Callable
from itertools import product

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.xds.client.api import ResourceStatus
from proxyless.xds.client.cache import CachedResource, DecodedResourceCache, Entry
from proxyless.xds.client.notifications import (
    AmbientErrorNotification,
    Notification,
    ResourceNotification,
)
from tests.worlds.xds_clients import TextType

BAD = Status(StatusCode.INVALID_ARGUMENT, "bad")
GONE = Status(StatusCode.NOT_FOUND, "gone")
OUT = Status(StatusCode.UNAVAILABLE, "out")
LATE = Status(StatusCode.UNAVAILABLE, "late")
DENIED = Status(StatusCode.PERMISSION_DENIED, "denied")

Event = Callable[[Entry], Notification | None]
EVENTS: dict[str, Event] = {
    "v1": lambda entry: entry.on_valid("v1", b"v1", "1", 1.0),
    "v2": lambda entry: entry.on_valid("v2", b"v2", "2", 2.0),
    "bad": lambda entry: entry.on_invalid(BAD, "3", drops=False),
    "bad, dropped": lambda entry: entry.on_invalid(BAD, "3", drops=True),
    "deleted": lambda entry: entry.on_deleted(GONE, drops=True),
    "deleted, kept": lambda entry: entry.on_deleted(GONE, drops=False),
    "denied": lambda entry: entry.on_server_error(DENIED, drops=False),
    "denied, dropped": lambda entry: entry.on_server_error(DENIED, drops=True),
    "timeout": lambda entry: entry.on_timeout(GONE),
    "slow": lambda entry: entry.on_timeout(LATE),
    "outage": lambda entry: entry.on_outage(OUT),
    "reachable": lambda entry: entry.on_reachable(),
}


def new_entry() -> Entry:
    return Entry(TextType(), "x", None)


def publish(*events: str) -> list[Notification | None]:
    entry = new_entry()
    return [EVENTS[event](entry) for event in events]


class Model:
    """State of a watcher that got every notification."""

    def __init__(self) -> None:
        self.resource: object = None
        self.ambient = OK

    def notify(self, notification: Notification | None) -> None:
        match notification:
            case ResourceNotification(resource):
                assert resource != self.resource, "a resource is not published twice"
                self.resource, self.ambient = resource, OK
            case AmbientErrorNotification(status):
                assert isinstance(self.resource, str), "an ambient error stands beside a resource"
                assert status != self.ambient, "an ambient error is not published twice"
                self.ambient = status
            case None:
                pass


@pytest.mark.parametrize("first", EVENTS)
def test_late_and_early_watchers_have_the_same_state_after_any_events(first: str) -> None:
    for others in product(EVENTS, repeat=2):
        entry, early = new_entry(), Model()
        for event in (first, *others):
            early.notify(EVENTS[event](entry))
            if event == "reachable" and early.resource == OUT:
                # The outage has ended. There is no notification, not even for new watchers.
                early.resource = None
            late = Model()
            for notification in entry.initial_notifications():
                late.notify(notification)
            assert (late.resource, late.ambient) == (early.resource, early.ambient)
            assert entry.has_resource == isinstance(early.resource, str)
            assert bool(entry.dump().serialized) == entry.has_resource


def test_outage_does_not_replace_a_data_error() -> None:
    assert publish("bad", "outage")[1] is None
    assert publish("timeout", "outage")[1] is None
    assert publish("v1", "outage")[1] == AmbientErrorNotification(OUT)
    assert publish("outage") == [ResourceNotification(OUT)]


def test_entry_publishes_the_data_error_again_when_the_outage_ends() -> None:
    assert publish("v1", "bad", "outage", "reachable")[1:] == [
        AmbientErrorNotification(BAD),
        AmbientErrorNotification(OUT),
        AmbientErrorNotification(BAD),
    ]
    assert publish("v1", "outage", "reachable")[2] == AmbientErrorNotification(OK)
    assert publish("v1", "reachable")[1] is None


def test_server_error_drops_a_resource_only_when_it_is_a_data_error() -> None:
    assert publish("v1", "denied, dropped")[1] == ResourceNotification(DENIED)
    entry = new_entry()
    entry.on_valid("v1", b"v1", "1", 0.0)
    assert entry.on_server_error(OUT, drops=True) == AmbientErrorNotification(OUT)
    assert entry.has_resource


def test_entry_ends_the_ambient_error_when_a_resource_comes() -> None:
    assert publish("v1", "bad", "v2")[2] == ResourceNotification("v2")
    assert publish("v1", "bad", "v1")[2] == AmbientErrorNotification(OK)
    assert publish("v1", "v1")[1] is None


def test_entry_is_answered_when_the_resource_is_there_or_does_not_exist() -> None:
    answered = {}
    for name, event in EVENTS.items():
        entry = new_entry()
        event(entry)
        answered[name] = entry.is_answered
    assert {name for name, is_answered in answered.items() if is_answered} == {
        "v1",
        "v2",
        "deleted",
        "deleted, kept",
        "timeout",
    }


def test_dump_has_the_resource_in_use_and_the_error() -> None:
    entry = new_entry()
    entry.on_valid("v1", b"v1", "1", 5.0)
    entry.on_invalid(BAD, "2", drops=False)
    dump = entry.dump()
    assert (dump.status, dump.version, dump.serialized) == (ResourceStatus.NACKED, "1", b"v1")
    assert (dump.failed_version, dump.error, dump.updated_s) == ("2", BAD, 5.0)
    entry.on_valid("v3", b"v3", "3", 6.0)
    assert (entry.dump().failed_version, entry.dump().error) == ("", OK)


def test_decoded_cache_holds_the_latest_bytes_of_watched_resources() -> None:
    cache, entry = DecodedResourceCache(), new_entry()
    cache.put(b"1", CachedResource("x", "", entry))
    cache.put(b"2", CachedResource("x", "", entry))
    assert cache.find(b"1") is None
    assert cache.find(b"2") == CachedResource("x", "", entry)
    cache.remove("x")
    assert cache.find(b"2") is None
    cache.remove("x")


def test_decoded_cache_holds_unwatched_resources_for_one_response() -> None:
    cache = DecodedResourceCache()
    cache.start_response()
    cache.put(b"1", CachedResource("x", "", None))
    cache.end_response()
    cache.start_response()
    assert cache.find(b"1") is not None
    cache.end_response()
    cache.start_response()
    assert cache.find(b"1") is None
