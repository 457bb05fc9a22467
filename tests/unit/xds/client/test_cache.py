"""What is known about a resource, and what do its watchers hear?"""

from collections.abc import Callable
from itertools import product

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.xds.client.api import ResourceStatus
from proxyless.xds.client.cache import AmbientNews, Entry, News, ResourceNews, Seen, Sighting
from tests.xds_client_world import Text

BAD = Status(StatusCode.INVALID_ARGUMENT, "bad")
GONE = Status(StatusCode.NOT_FOUND, "gone")
OUT = Status(StatusCode.UNAVAILABLE, "out")
LATE = Status(StatusCode.UNAVAILABLE, "late")
DENIED = Status(StatusCode.PERMISSION_DENIED, "denied")

Event = Callable[[Entry], News | None]
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
    "contact": lambda entry: entry.on_contact(),
}


def new_entry() -> Entry:
    return Entry(Text(), "x", None)


def told(*events: str) -> list[News | None]:
    entry = new_entry()
    return [EVENTS[event](entry) for event in events]


class Model:
    """What a watcher knows that was told everything."""

    def __init__(self) -> None:
        self.resource: object = None
        self.ambient = OK

    def hear(self, news: News | None) -> None:
        match news:
            case ResourceNews(resource):
                assert resource != self.resource, "the same thing is not told twice"
                self.resource, self.ambient = resource, OK
            case AmbientNews(status):
                assert isinstance(self.resource, str), "an ambient error stands beside a resource"
                assert status != self.ambient, "the same trouble is not told twice"
                self.ambient = status
            case None:
                pass


@pytest.mark.parametrize("first", EVENTS)
def test_late_and_early_watchers_know_the_same_whatever_happened(first: str) -> None:
    for rest in product(EVENTS, repeat=2):
        entry, early = new_entry(), Model()
        for event in (first, *rest):
            early.hear(EVENTS[event](entry))
            if event == "contact" and early.resource == OUT:
                # It is over. There is nothing to tell, and who comes now is not told of it.
                early.resource = None
            late = Model()
            for news in entry.greet():
                late.hear(news)
            assert (late.resource, late.ambient) == (early.resource, early.ambient)
            assert entry.has_resource == isinstance(early.resource, str)
            assert bool(entry.dump().serialized) == entry.has_resource


def test_an_outage_does_not_hide_an_answer() -> None:
    assert told("bad", "outage")[1] is None
    assert told("timeout", "outage")[1] is None
    assert told("v1", "outage")[1] == AmbientNews(OUT)
    assert told("outage") == [ResourceNews(OUT)]


def test_contact_restores_the_trouble_that_was_there_before_the_outage() -> None:
    assert told("v1", "bad", "outage", "contact")[1:] == [
        AmbientNews(BAD),
        AmbientNews(OUT),
        AmbientNews(BAD),
    ]
    assert told("v1", "outage", "contact")[2] == AmbientNews(OK)
    assert told("v1", "contact")[1] is None


def test_only_errors_about_the_data_drop_a_resource() -> None:
    assert told("v1", "denied, dropped")[1] == ResourceNews(DENIED)
    entry = new_entry()
    entry.on_valid("v1", b"v1", "1", 0.0)
    assert entry.on_server_error(OUT, drops=True) == AmbientNews(OUT)
    assert entry.has_resource


def test_a_new_resource_ends_the_trouble_and_an_equal_one_is_no_news() -> None:
    assert told("v1", "bad", "v2")[2] == ResourceNews("v2")
    assert told("v1", "bad", "v1")[2] == AmbientNews(OK)
    assert told("v1", "v1")[1] is None


def test_what_counts_as_an_answer() -> None:
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


def test_a_dump_shows_what_is_in_use_and_what_is_wrong() -> None:
    entry = new_entry()
    entry.on_valid("v1", b"v1", "1", 5.0)
    entry.on_invalid(BAD, "2", drops=False)
    dump = entry.dump()
    assert (dump.status, dump.version, dump.serialized) == (ResourceStatus.NACKED, "1", b"v1")
    assert (dump.failed_version, dump.error, dump.updated_s) == ("2", BAD, 5.0)
    entry.on_valid("v3", b"v3", "3", 6.0)
    assert (entry.dump().failed_version, entry.dump().error) == ("", OK)


def test_seen_holds_the_latest_bytes_of_what_is_watched() -> None:
    seen, entry = Seen(), new_entry()
    seen.remember(b"1", Sighting("x", "", entry))
    seen.remember(b"2", Sighting("x", "", entry))
    assert seen.find(b"1") is None
    assert seen.find(b"2") == Sighting("x", "", entry)
    seen.forget("x")
    assert seen.find(b"2") is None
    seen.forget("x")


def test_seen_holds_what_nobody_watches_for_one_response() -> None:
    seen = Seen()
    seen.start_response()
    seen.remember(b"1", Sighting("x", "", None))
    seen.end_response()
    seen.start_response()
    assert seen.find(b"1") is not None
    seen.end_response()
    seen.start_response()
    assert seen.find(b"1") is None
