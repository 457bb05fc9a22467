"""Unit tests of proxyless.xds.client.last_good, with a client and fake control planes."""

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from proxyless.base import Status
from proxyless.runtime import VirtualClock, WorkQueue
from proxyless.xds.bootstrap import DELTA, Authority, Bootstrap, ServerConfig
from proxyless.xds.client import DecodeContext, Decoded
from proxyless.xds.client.api import EarlyDeletion
from proxyless.xds.client.cache import ResourceKey
from proxyless.xds.client.config_file import SavedResource
from proxyless.xds.client.last_good import (
    FIRST_SAVE_S,
    REFRESH_INTERVAL_S,
    RETRY_INTERVAL_S,
    SAVE_INTERVAL_S,
    SETTLE_S,
    WAIT_S,
    LastGood,
)
from tests.worlds.collections import GLOB, MEMBERS, member
from tests.worlds.xds_clients import (
    CLUSTER,
    LISTENER,
    ROUTES,
    TextType,
    WatchRecorder,
    XdsClientWorld,
    server_config,
    text,
)

SAVED_S = 1_800_000_000.0


class MemoryStore:
    """Store in memory, which holds the contents of each write."""

    def __init__(self, saved: Mapping[ResourceKey, SavedResource] | None = None) -> None:
        self.saved = dict(saved or {})
        self.writes: list[dict[str, str]] = []
        self.has_space = True
        self.now_s = SAVED_S
        self.max_age_s = 86_400.0

    def __str__(self) -> str:
        return "config cache 'memory'"

    def read(self) -> dict[ResourceKey, SavedResource]:
        return dict(self.saved)

    def write(self, resources: Mapping[ResourceKey, SavedResource]) -> bool:
        if self.has_space:
            self.saved = dict(resources)
            self.writes.append({name: saved.version for (_, name), saved in resources.items()})
        return self.has_space

    def wall_time_s(self) -> float:
        return self.now_s


class HeldWork:
    """Offload that runs the work when the test calls `run`, or at once."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self._held: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], Any], on_result: Callable[[Any], None], /) -> None:
        if self.is_held:
            self._held.append(lambda: on_result(work()))
        else:
            on_result(work())

    def run(self) -> None:
        self.is_held = False
        held, self._held = self._held, []
        for each in held:
            each()


def saved(world_type: str, name: str, value: str = "saved") -> dict[ResourceKey, SavedResource]:
    key = (f"type.googleapis.com/test.v3.{world_type}", name)
    return {key: SavedResource("s1", text(name, value), SAVED_S)}


class CachedWorld(XdsClientWorld):
    """A client with a config cache. Its first server is down unless `is_up`."""

    def __init__(
        self,
        store: MemoryStore,
        *servers: ServerConfig,
        is_up: bool = False,
        is_held: bool = False,
        keeps_unwatched: bool = False,
        bootstrap: Bootstrap | None = None,
    ) -> None:
        self.store = store
        self.work = HeldWork(is_held=is_held)

        def make(clock: VirtualClock) -> LastGood:
            queue = WorkQueue(clock)
            return LastGood(store, clock, queue, self.work, keeps_unwatched=keeps_unwatched)

        super().__init__(*servers, bootstrap=bootstrap, make_last_good=make)
        self.server().is_up = is_up

    def fail(self, uri: str = "a") -> None:
        self.server(uri).fail()
        self.settle()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(saved(LISTENER, "x"))


@pytest.mark.spec("CACHE-02")
def test_saved_resource_is_used_at_once_when_the_server_is_unreachable(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    world = CachedWorld(store)
    watcher = world.watch(world.listeners, "x")
    assert watcher.take() == []
    with caplog.at_level(logging.WARNING, "proxyless.xds.client.last_good"):
        world.fail()
    # The error leaves the resource in use.
    assert watcher.take_codes() == ["saved", ("ambient", "UNAVAILABLE")]
    [record] = [each for each in caplog.records if each.name == "proxyless.xds.client.last_good"]
    assert record.getMessage() == (
        "config cache 'memory': no xds server answers, "
        "started with the config of 2027-01-15 08:00:00 UTC"
    )
    world.close()


def test_watch_fails_when_there_is_no_saved_resource() -> None:
    world = CachedWorld(MemoryStore())
    watcher = world.watch(world.listeners, "x")
    world.fail()
    assert watcher.take_codes() == ["UNAVAILABLE"]
    world.close()


@pytest.mark.spec("CACHE-02")
def test_saved_resource_is_used_after_a_wait_when_the_server_is_silent(store: MemoryStore) -> None:
    world = CachedWorld(store, is_up=True)
    watcher = world.watch(world.listeners, "x")
    world.clock.advance(WAIT_S * 0.99)
    assert watcher.take() == []
    world.clock.advance(WAIT_S * 0.01)
    assert watcher.take() == ["saved"]
    # Watches that follow from it do not wait again.
    store_routes = saved("RouteConfiguration", "r")
    world.client._last_good._saved.update(store_routes)  # type: ignore[union-attr]
    assert world.watch(world.routes, "r").take() == ["saved"]
    world.close()


@pytest.mark.spec("CACHE-02")
def test_saved_resource_is_not_used_when_the_server_answers_in_time(store: MemoryStore) -> None:
    store.saved.update(saved("RouteConfiguration", "r"))
    world = CachedWorld(store, is_up=True)
    watcher = world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "live"))
    routes = world.watch(world.routes, "r")
    world.clock.advance(WAIT_S * 2)
    assert watcher.take() == ["live"]
    assert routes.take() == []
    world.close()


def test_saved_resource_is_used_when_the_server_fails_before_it_sent_all(
    store: MemoryStore,
) -> None:
    store.saved.update(saved("RouteConfiguration", "r"))
    world = CachedWorld(store, is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "live"))
    routes = world.watch(world.routes, "r")
    world.server().ads.end()
    world.fail()
    assert routes.take_codes() == ["saved", ("ambient", "UNAVAILABLE")]
    world.close()


@pytest.mark.spec("CACHE-02")
def test_saved_resource_is_used_when_a_server_that_has_answered_is_silent_since_its_restart(
    store: MemoryStore,
) -> None:
    store.saved.update(saved("RouteConfiguration", "r"))
    world = CachedWorld(store, is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "live"))
    routes = world.watch(world.routes, "r")
    world.server().ads.end()
    world.clock.advance(60.0)
    assert routes.take_codes() == ["saved", ("ambient", "NOT_FOUND")]
    world.server().respond(world.routes, text("r", "live"))
    assert routes.take_codes()[-1] == "live"
    world.close()


def test_watch_fails_when_the_saved_resource_is_invalid_and_the_server_is_silent_since_its_restart(
    store: MemoryStore,
) -> None:
    store.saved.update(saved("RouteConfiguration", "r", "bad"))
    world = CachedWorld(store, is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "live"))
    routes = world.watch(world.routes, "r")
    world.server().ads.end()
    world.clock.advance(60.0)
    assert routes.take_codes() == ["NOT_FOUND"]
    world.close()


@pytest.mark.spec("CACHE-03")
def test_answer_replaces_the_saved_resource(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxyless.xds.client.last_good")
    world = CachedWorld(store)
    watcher = world.watch(world.listeners, "x")
    world.fail()
    watcher.take()
    [dump] = world.client.dump()
    assert (dump.status.name, dump.version, dump.saved_s) == ("REQUESTED", "s1", SAVED_S)
    world.server().recover()
    world.server().respond(world.listeners, text("x", "live"))
    assert watcher.take_codes() == [("ambient", "OK"), "live"]
    [dump] = world.client.dump()
    assert (dump.status.name, dump.version, dump.saved_s) == ("ACKED", "1", None)
    world.clock.advance(FIRST_SAVE_S)
    assert "not used any more, the control plane has answered" in caplog.text
    world.close()


def test_equal_answer_is_not_published_again(store: MemoryStore) -> None:
    world = CachedWorld(store)
    watcher = world.watch(world.listeners, "x")
    world.fail()
    watcher.take()
    world.server().recover()
    world.server().respond(world.listeners, text("x", "saved"))
    assert watcher.take_codes() == [("ambient", "OK")]
    world.close()


@pytest.mark.spec("CACHE-03")
def test_deletion_by_a_server_that_answers_drops_the_saved_resource(store: MemoryStore) -> None:
    world = CachedWorld(store)
    watcher = world.watch(world.listeners, "x")
    world.fail()
    watcher.take()
    world.server().recover()
    world.server().respond(world.listeners, text("y"))
    assert watcher.take_codes()[-1] == "NOT_FOUND"
    world.close()


@pytest.mark.spec("CACHE-03")
def test_saved_resource_is_dropped_when_a_server_that_answers_does_not_send_it() -> None:
    world = CachedWorld(MemoryStore(saved("RouteConfiguration", "r")))
    world.watch(world.listeners, "x")
    watcher = world.watch(world.routes, "r")
    world.fail()
    assert watcher.take_codes()[0] == "saved"
    world.server().recover()
    world.server().respond(world.listeners, text("x"))
    world.clock.advance(15.0)
    assert watcher.take_codes()[-1] == "NOT_FOUND"
    world.close()


def test_saved_resource_is_kept_when_the_server_accepts_and_never_answers(
    store: MemoryStore,
) -> None:
    world = CachedWorld(store, is_up=True)
    watcher = world.watch(world.listeners, "x")
    world.clock.advance(60.0)
    received = watcher.take_codes()
    assert received[0] == "saved"
    assert all(isinstance(each, tuple) for each in received[1:])
    world.close()


def test_fallback_server_is_preferred_to_saved_resources(store: MemoryStore) -> None:
    world = CachedWorld(store, server_config("a"), server_config("b"))
    watcher = world.watch(world.listeners, "x")
    world.fail()
    assert watcher.take() == []
    world.server("b").respond(world.listeners, text("x", "from b"))
    assert watcher.take() == ["from b"]
    world.close()


@pytest.mark.spec("CACHE-03")
def test_fallback_continues_while_a_saved_resource_is_used(store: MemoryStore) -> None:
    world = CachedWorld(store, server_config("a"), server_config("b"))
    world.server("b").is_up = False
    watcher = world.watch(world.listeners, "x")
    world.fail("a")
    world.fail("b")
    assert watcher.take_codes()[0] == "saved"
    world.server("b").recover()
    world.server("b").respond(world.listeners, text("x", "from b"))
    assert "from b" in watcher.take()
    world.close()


def test_error_is_published_after_the_file_is_read(store: MemoryStore) -> None:
    world = CachedWorld(store, is_held=True)
    saved_one, other = world.watch(world.listeners, "x"), world.watch(world.listeners, "y")
    world.fail()
    assert (saved_one.take(), other.take()) == ([], [])
    world.work.run()
    world.settle()
    assert saved_one.take_codes()[0] == "saved"
    assert other.take_codes() == ["UNAVAILABLE"]
    world.close()


def test_error_is_published_when_the_file_system_hangs(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    world = CachedWorld(store, is_held=True)
    watcher = world.watch(world.listeners, "x")
    world.fail()
    world.clock.advance(WAIT_S)
    assert watcher.take_codes() == ["UNAVAILABLE"]
    assert "not read in 2 s" in caplog.text
    world.work.run()
    world.settle()
    assert watcher.take_codes()[0] == "saved"
    world.close()


def test_file_that_is_read_after_the_control_plane_has_answered_is_not_saved_again(
    store: MemoryStore,
) -> None:
    world = CachedWorld(store, is_up=True, is_held=True)
    world.watch(world.listeners, "y")
    world.clock.advance(WAIT_S)
    world.server().respond(world.listeners, text("y"))
    world.clock.advance(FIRST_SAVE_S)
    world.work.run()
    world.server().respond(world.listeners, text("y", "v2"), version="2")
    world.clock.advance(2 * SAVE_INTERVAL_S)
    assert world.store.writes == [{"y": "1"}, {"y": "2"}]
    world.close()


def test_nothing_happens_when_the_file_is_read_after_close(store: MemoryStore) -> None:
    world = CachedWorld(store, is_held=True)
    watcher = world.watch(world.listeners, "x")
    world.fail()
    world.close()
    world.work.run()
    assert watcher.take() == []


def test_invalid_saved_resource_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """For example because this version of the package rejects it."""
    world = CachedWorld(MemoryStore(saved(LISTENER, "x", "bad")))
    watcher = world.watch(world.listeners, "x")
    world.fail()
    assert watcher.take_codes() == ["UNAVAILABLE"]
    assert "config cache 'memory': not used: listener \"x\": value is bad" in caplog.text
    world.close()


class SteppedTextType(TextType):
    """Resource type that needs many turns."""

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Generator[int, None, Decoded[str]]:
        for _ in range(5):
            yield 10_000
        return self.decode(serialized, context)


def test_large_resource_is_decoded_in_several_turns(store: MemoryStore) -> None:
    world = CachedWorld(store)
    stepped = SteppedTextType(LISTENER, is_full_state=True)
    watcher = world.watch(stepped, "x")
    world.server().fail()
    assert stepped.decoded == 0
    world.settle()
    assert watcher.take_codes()[0] == "saved"
    world.close()


class BrokenType(TextType):
    """Resource type with a bug."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[str]:
        raise RuntimeError("a bug")


def test_bug_of_a_resource_type_is_an_error_of_the_resource(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    world = CachedWorld(store)
    watcher = world.watch(BrokenType(LISTENER, is_full_state=True), "x")
    world.fail()
    assert watcher.take_codes() == ["UNAVAILABLE"]
    assert "not used: decoding raised RuntimeError" in caplog.text
    world.close()


def test_entry_without_watches_is_left_alone_when_the_file_is_read(store: MemoryStore) -> None:
    world = CachedWorld(store, is_held=True)
    cancels = [
        world.client.watch(world.listeners, name, WatchRecorder()) for name in ("x", "unsaved")
    ]
    world.fail()
    for cancel in cancels:
        cancel()
    world.settle()
    world.work.run()
    assert world.client.dump() == []
    world.close()


def test_decoding_ends_with_the_client(store: MemoryStore) -> None:
    world = CachedWorld(store)
    stepped = SteppedTextType(LISTENER, is_full_state=True)
    watcher = world.watch(stepped, "x")
    world.server().fail()
    world.client.close()
    world.settle()
    assert (stepped.decoded, watcher.take()) == (0, [])


# Saving


@pytest.mark.spec("CACHE-01")
def test_config_is_saved_when_every_watched_resource_is_answered() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.watch(world.routes, "r")
    world.server().respond(world.listeners, text("x"), version="7")
    world.clock.advance(SAVE_INTERVAL_S)
    assert world.store.writes == []
    world.server().respond(world.routes, text("r"), version="8")
    world.clock.advance(FIRST_SAVE_S)
    assert world.store.writes == [{"x": "7", "r": "8"}]
    assert {each.saved_s for each in world.store.saved.values()} == {SAVED_S}
    world.close()


@pytest.mark.spec("CACHE-01")
def test_config_is_not_saved_while_resources_that_it_names_are_not_watched_yet() -> None:
    world = CachedWorld(MemoryStore(saved(LISTENER, "x")), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    # The watcher is slow: the time to save comes first.
    world.clock.advance(FIRST_SAVE_S - SETTLE_S)
    world.watch(world.routes, "r")
    world.clock.advance(SAVE_INTERVAL_S)
    assert world.store.writes == []
    world.server().respond(world.routes, text("r"), version="8")
    world.clock.advance(FIRST_SAVE_S)
    assert world.store.writes == [{"x": "7", "r": "8"}]
    world.close()


@pytest.mark.spec("CACHE-01")
def test_config_that_is_answered_while_it_is_prepared_is_saved_whole() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    world.clock.advance(FIRST_SAVE_S - SETTLE_S)
    world.watch(world.routes, "r")
    world.server().respond(world.routes, text("r"), version="8")
    world.clock.advance(SETTLE_S)
    assert world.store.writes == []
    world.clock.advance(SETTLE_S)
    assert world.store.writes == [{"x": "7", "r": "8"}]
    world.close()


def test_config_that_is_answered_before_the_file_is_read_is_saved() -> None:
    world = CachedWorld(MemoryStore(), is_up=True, is_held=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    world.clock.advance(1.0)
    world.work.run()
    world.clock.advance(FIRST_SAVE_S)
    assert world.store.writes == [{"x": "7"}]
    world.close()


def test_config_is_saved_when_a_resource_does_not_exist() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.watch(world.routes, "r")
    world.server().respond(world.listeners, text("x"))
    world.clock.advance(15.0 + SAVE_INTERVAL_S)
    assert world.store.writes == [{"x": "1"}]
    world.close()


@pytest.mark.spec("CACHE-01")
def test_config_is_not_saved_while_a_server_is_silent_about_a_new_resource() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.clock.advance(SAVE_INTERVAL_S)
    # The next config needs a resource, which the server does not send before it restarts.
    world.server().respond(world.listeners, text("x", "new"), version="2")
    watcher = world.watch(world.routes, "r")
    world.server().ads.end()
    world.clock.advance(60.0)
    assert watcher.take_codes() == ["NOT_FOUND"]
    assert world.store.writes == [{"x": "1"}]
    world.server().respond(world.routes, text("r"), version="3")
    world.clock.advance(FIRST_SAVE_S)
    assert world.store.writes == [{"x": "1"}, {"x": "2", "r": "3"}]
    world.close()


def test_changes_are_coalesced() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    for number in range(100):
        world.server().respond(world.listeners, text("x", str(number)), version=str(number))
        world.clock.advance(0.1)
    assert world.clock.now_s() == pytest.approx(1010.0)
    assert [write["x"] for write in world.store.writes] == ["0", "50"]
    world.clock.advance(SAVE_INTERVAL_S)
    assert world.store.writes[-1] == {"x": "99"}
    world.close()


def test_config_that_could_not_be_written_is_written_later() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.store.has_space = False
    world.server().respond(world.listeners, text("x", "a"), version="1")
    world.clock.advance(FIRST_SAVE_S)
    world.store.has_space = True
    world.clock.advance(RETRY_INTERVAL_S)
    assert world.store.writes == [{"x": "1"}]
    world.close()


def test_one_write_at_a_time_and_the_newest_config_follows() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "a"), version="1")
    world.work.is_held = True
    world.clock.advance(FIRST_SAVE_S)
    world.server().respond(world.listeners, text("x", "b"), version="2")
    world.clock.advance(10 * SAVE_INTERVAL_S)
    assert world.store.writes == []
    world.work.run()
    world.clock.advance(SAVE_INTERVAL_S)
    assert world.store.writes == [{"x": "1"}, {"x": "2"}]
    world.close()


def test_unchanged_config_is_saved_again_only_while_the_server_answers() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.clock.advance(FIRST_SAVE_S)
    world.store.now_s += REFRESH_INTERVAL_S * 3
    world.clock.advance(REFRESH_INTERVAL_S * 2 + 2 * SAVE_INTERVAL_S)
    assert len(world.store.writes) >= 2
    assert {each.saved_s for each in world.store.saved.values()} == {world.store.now_s}
    count = len(world.store.writes)
    world.fail()
    world.clock.advance(REFRESH_INTERVAL_S * 5)
    assert len(world.store.writes) == count
    world.close()


def test_unchanged_config_is_saved_again_before_it_is_too_old() -> None:
    store = MemoryStore()
    store.max_age_s = 600.0
    world = CachedWorld(store, is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"))
    world.clock.advance(FIRST_SAVE_S)
    for count in (1, 2, 3):
        assert len(store.writes) == count
        world.clock.advance(store.max_age_s / 2 + SAVE_INTERVAL_S)
    world.close()


def test_change_is_saved_soon_while_a_refresh_is_scheduled() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "a"), version="1")
    world.clock.advance(REFRESH_INTERVAL_S / 2)
    world.server().respond(world.listeners, text("x", "b"), version="2")
    world.clock.advance(FIRST_SAVE_S)
    assert world.store.writes[-1] == {"x": "2"}
    world.close()


def test_rejected_resource_does_not_replace_the_accepted_one() -> None:
    world = CachedWorld(MemoryStore(), is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x", "good"), version="1")
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    world.clock.advance(SAVE_INTERVAL_S)
    assert world.store.writes == [{"x": "1"}]
    world.close()


def test_file_stays_when_the_server_has_deleted_all(store: MemoryStore) -> None:
    world = CachedWorld(store, is_up=True)
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners)
    world.clock.advance(60.0)
    assert world.store.writes == []
    world.close()


def test_saved_resource_that_the_server_rejects_is_kept_and_becomes_no_younger(
    store: MemoryStore,
) -> None:
    world = CachedWorld(store)
    watcher = world.watch(world.listeners, "x")
    world.watch(world.routes, "r")
    world.fail()
    assert watcher.take_codes()[0] == "saved"
    world.server().recover()
    world.server().respond(world.listeners, text("x", "bad"))
    world.server().respond(world.routes, text("r"))
    assert watcher.take_codes()[-1] == ("ambient", "INVALID_ARGUMENT")
    world.store.now_s += 60.0
    world.clock.advance(FIRST_SAVE_S)
    ages_s = {name: saved.saved_s for (_, name), saved in world.store.saved.items()}
    assert ages_s == {"x": SAVED_S, "r": SAVED_S + 60.0}
    world.close()


@pytest.mark.parametrize(("keeps", "names"), [(True, {"x", "y"}), (False, {"y"})])
def test_shared_client_keeps_the_resources_of_targets_that_have_not_come_yet(
    store: MemoryStore, keeps: bool, names: set[str]
) -> None:
    world = CachedWorld(store, is_up=True, keeps_unwatched=keeps)
    world.watch(world.listeners, "y")
    world.server().respond(world.listeners, text("y"))
    world.clock.advance(FIRST_SAVE_S)
    [write] = world.store.writes
    assert write.keys() == names
    world.close()


def test_saved_resources_are_used_by_the_next_process() -> None:
    store = MemoryStore()
    first = CachedWorld(store, is_up=True)
    first.watch(first.listeners, "x")
    first.server().respond(first.listeners, text("x", "accepted"))
    first.clock.advance(FIRST_SAVE_S)
    first.close()
    second = CachedWorld(store)
    watcher = second.watch(second.listeners, "x")
    second.fail()
    assert watcher.take_codes()[0] == "accepted"
    second.close()


@pytest.mark.spec("LE-13")
def test_collection_is_saved_and_used_with_its_members() -> None:
    store = MemoryStore()
    bootstrap = Bootstrap(
        servers=(server_config("a", DELTA),), authorities={"mesh": Authority((), "")}
    )

    def make(clock: VirtualClock) -> LastGood:
        return LastGood(store, clock, WorkQueue(clock), HeldWork())

    before = XdsClientWorld(bootstrap=bootstrap, make_last_good=make)
    before.watch(MEMBERS, GLOB)
    before.server().respond_delta(MEMBERS, *(member(name) for name in "xy"))
    before.clock.advance(FIRST_SAVE_S)
    assert store.writes == [{GLOB: ""}]
    # The next change is saved as well.
    before.server().respond_delta(MEMBERS, member("x", "v2"))
    before.clock.advance(SAVE_INTERVAL_S)
    before.close()
    after = XdsClientWorld(bootstrap=bootstrap, make_last_good=make)
    after.server().is_up = False
    watcher = after.watch(MEMBERS, GLOB)
    after.server().fail()
    after.settle()
    [saved] = [each for each in watcher.take() if isinstance(each, Mapping)]
    assert {name.rpartition("/")[2]: value for name, value in saved.items()} == {
        "x": "v2",
        "y": "v1",
    }
    (dump,) = after.client.dump()
    assert (dump.serialized, dump.saved_s) == (b"", SAVED_S)
    # The members that a server sends replace all that were saved.
    after.server().recover()
    after.clock.advance(60)
    after.server().respond_delta(MEMBERS, member("y"))
    assert {name.rpartition("/")[2] for name in watcher.take()[-1]} == {"y"}
    after.close()


@pytest.mark.spec("HOLD-10")
def test_saved_cluster_is_deleted_early_by_a_server_that_was_silent_at_first() -> None:
    world = CachedWorld(
        MemoryStore({**saved(ROUTES, "y"), **saved(CLUSTER, "c")}), server_config("a"), is_up=True
    )
    world.watch(world.routes, "y")
    c = world.watch(world.clusters, "c")
    world.clock.advance(3.0)
    assert c.take() == ["saved"]
    world.server().respond(world.clusters)
    (early,) = c.take()
    assert isinstance(early, EarlyDeletion)
    world.server().respond(world.routes, text("y"))
    (final,) = c.take()
    assert type(final) is Status
    world.close()
