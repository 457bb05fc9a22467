"""A31, channel part: config selectors, commit hooks and the order of updates."""

from __future__ import annotations

import pytest

import proxyless
from proxyless import aio, sync
from proxyless.base import EMPTY_ATTRIBUTES, OK, Key, Metadata, State, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.service_config import MethodConfig, RetryPolicy
from proxyless.front import AioChannel, SyncChannel
from proxyless.lb import QUEUE, Fail, PickInfo, PickResult
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.wire import StreamEnd
from tests.worlds.channels import (
    PATH,
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeSelector,
    RecordingPicker,
)

PLAIN = CallConfig(MethodConfig())
CLUSTER: Key[str] = Key("cluster")
RETRIES = MethodConfig(
    retry_policy=RetryPolicy(
        attempts_max=3,
        initial_backoff_s=1.0,
        max_backoff_s=1.0,
        backoff_multiplier=1.0,
        retryable_codes=frozenset({StatusCode.UNAVAILABLE}),
    )
)
INTERNAL = Status(StatusCode.INTERNAL, "no route matches")


class Hook:
    """A commit hook that counts."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1


class DelayedAbort:
    """Filters that abort the RPC after a delay, before its first pick."""

    mirrors = ()
    delay_s = 2.0
    abort = INTERNAL

    def on_delay_start(self) -> None:
        return

    def on_delay_end(self) -> None:
        return

    def on_head(self, metadata: Metadata) -> Metadata:
        return metadata

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        return end


@pytest.mark.spec("A31-01")
def test_selector_of_a_resolver_result_is_used_for_calls() -> None:
    world = ChannelWorld()
    selector = FakeSelector(PLAIN)
    world.connect(selector)
    _, observer = world.call()
    assert selector.selected == [(PATH, ())]
    world.streams[0].respond()
    assert observer.status == OK


@pytest.mark.spec("A31-01")
def test_selector_is_not_in_the_public_api() -> None:
    exported = [*proxyless.__all__, *aio.__all__, *sync.__all__]
    methods = [*dir(AioChannel), *dir(SyncChannel)]
    assert [name for name in (*exported, *methods) if "selector" in name.lower()] == []


@pytest.mark.spec("A31-02")
def test_selector_is_called_once_per_rpc_despite_repicks_and_retries() -> None:
    world = ChannelWorld()
    selector = FakeSelector(CallConfig(RETRIES))
    world.channel.request_connection()
    world.resolve(selector)
    world.report(State.CONNECTING, QUEUE_PICKER)
    _, observer = world.call()
    world.report(State.CONNECTING, QUEUE_PICKER)
    world.ready()
    world.streams[0].end(UNPROCESSED)
    world.streams[1].end(UNAVAILABLE)
    world.clock.advance(2.0)
    world.streams[2].respond()
    assert observer.status == OK
    assert len(selector.selected) == 1


@pytest.mark.spec("A31-03")
def test_an_rpc_before_the_first_result_waits_for_the_first_selector() -> None:
    world = ChannelWorld()
    selector = FakeSelector(INTERNAL)
    _, observer = world.call()
    world.clock.advance(1000.0)
    assert observer.is_running
    world.resolve(selector)
    assert selector.selected == [(PATH, ())]
    assert observer.status == INTERNAL


@pytest.mark.spec("A31-04")
def test_service_config_applies_when_there_is_no_selector() -> None:
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "methodConfig": [{"name": [{"service": "pkg.Service"}], "timeout": "3s"}],
    }
    world = ChannelWorld(service_config=config)
    world.connect()
    call, observer = world.call()
    assert call.time_remaining_s() == pytest.approx(3.0)
    world.clock.advance(3.0)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


@pytest.mark.spec("A31-05")
def test_the_selectors_method_config_replaces_the_service_configs_for_that_rpc() -> None:
    config = {
        "loadBalancingConfig": [{"stub": {}}],
        "methodConfig": [{"name": [{}], "timeout": "3s"}],
    }
    world = ChannelWorld(service_config=config)
    answers = iter([CallConfig(MethodConfig(timeout_s=7.0)), PLAIN])
    world.connect(FakeSelector(lambda: next(answers)))
    first, _ = world.call()
    second, _ = world.call()
    assert first.time_remaining_s() == pytest.approx(7.0)
    assert second.time_remaining_s() is None


@pytest.mark.spec("A31-05")
@pytest.mark.parametrize("has_retries", [True, False])
def test_retry_policy_of_the_selector_replaces_that_of_the_service_config(
    has_retries: bool,
) -> None:
    retries = {
        "maxAttempts": 3,
        "initialBackoff": "1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    method = {"name": [{}]} if has_retries else {"name": [{}], "retryPolicy": retries}
    world = ChannelWorld(
        service_config={"loadBalancingConfig": [{"stub": {}}], "methodConfig": [method]}
    )
    world.connect(FakeSelector(CallConfig(RETRIES if has_retries else MethodConfig())))
    _, observer = world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    assert observer.is_running is has_retries
    assert len(world.streams) == (2 if has_retries else 1)


@pytest.mark.spec("A31-06")
def test_a_selector_without_a_commit_hook_works() -> None:
    world = ChannelWorld()
    world.connect(FakeSelector(CallConfig(MethodConfig(), on_commit=None)))
    _, observer = world.call()
    world.streams[0].respond()
    assert observer.status == OK


@pytest.mark.spec("A31-07")
def test_commit_hook_runs_once_when_no_further_pick_is_possible() -> None:
    world = ChannelWorld()
    hook = Hook()
    world.connect(FakeSelector(CallConfig(MethodConfig(), on_commit=hook)))
    _, observer = world.call()
    # The server may still refuse the stream; then the RPC is picked for again.
    assert hook.runs == 0
    world.streams[0].end(UNPROCESSED)
    assert hook.runs == 0
    world.streams[1].head()
    assert hook.runs == 1
    assert observer.is_running
    world.streams[1].end(StreamEnd(OK))
    assert hook.runs == 1


@pytest.mark.spec("A31-08")
@pytest.mark.parametrize(
    "ending", ["cancel", "deadline", "filter abort", "close", "send failure", "pick failure"]
)
def test_commit_hook_runs_once_when_rpc_ends_without_a_stream(ending: str) -> None:
    world = ChannelWorld()
    hook = Hook()
    config = MethodConfig(request_bytes_max=3 if ending == "send failure" else None)
    filters = DelayedAbort() if ending == "filter abort" else None
    world.channel.request_connection()
    world.resolve(FakeSelector(CallConfig(config, on_commit=hook, interception=filters)))
    queueing = RecordingPicker(QUEUE)
    world.report(State.CONNECTING, queueing)
    call, observer = world.call(b"long", timeout_s=5.0)
    assert hook.runs == (1 if ending == "send failure" else 0)
    match ending:
        case "cancel":
            call.cancel()
        case "deadline":
            world.clock.advance(5.0)
        case "filter abort":
            world.clock.advance(DelayedAbort.delay_s)
            assert observer.status == INTERNAL
            assert not queueing.picks
        case "close":
            world.channel.close()
        case "pick failure":
            world.report(State.TRANSIENT_FAILURE, FailPicker(INTERNAL))
        case _:
            pass
    assert hook.runs == 1
    assert not observer.is_running
    assert not world.streams


@pytest.mark.spec("A31-09")
def test_commit_hook_runs_at_the_response_head_when_retries_are_configured() -> None:
    world = ChannelWorld()
    hook = Hook()
    world.connect(FakeSelector(CallConfig(RETRIES, on_commit=hook)))
    _, observer = world.call()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    assert hook.runs == 0
    world.streams[1].head()
    assert hook.runs == 1
    assert observer.is_running


@pytest.mark.spec("A31-09")
@pytest.mark.parametrize(("failures", "code"), [(3, "UNAVAILABLE"), (1, "NOT_FOUND")])
def test_commit_hook_runs_at_the_last_or_fatal_failure_when_retries_are_configured(
    failures: int, code: str
) -> None:
    world = ChannelWorld()
    hook = Hook()
    world.connect(FakeSelector(CallConfig(RETRIES, on_commit=hook)))
    _, observer = world.call()
    end = StreamEnd(Status(StatusCode[code], "no"))
    for attempt in range(failures):
        assert hook.runs == 0
        world.streams[attempt].end(end)
        world.clock.advance(2.0)
    assert hook.runs == 1
    assert observer.status == end.status


@pytest.mark.spec("A31-09")
def test_rpc_commits_when_its_messages_exceed_the_retry_buffer() -> None:
    world = ChannelWorld(kept_bytes_max=10)
    hook = Hook()
    world.connect(FakeSelector(CallConfig(RETRIES, on_commit=hook)))
    call, observer = world.call(None)
    call.send_message(b"1234")
    call.send_message(b"567890")
    assert hook.runs == 0
    call.send_message(b"!")
    assert hook.runs == 1
    assert world.streams[0].messages == [b"1234", b"567890", b"!"]
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    assert observer.status == UNAVAILABLE.status
    assert len(world.streams) == 1


@pytest.mark.spec("A31-10")
def test_pick_info_reaches_every_pick_of_the_rpc() -> None:
    world = ChannelWorld()
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "orders")
    world.channel.request_connection()
    world.resolve(FakeSelector(CallConfig(RETRIES, attributes)))
    queueing = RecordingPicker(QUEUE)
    world.report(State.CONNECTING, queueing)
    world.call()
    ready = world.ready()
    world.streams[0].end(UNAVAILABLE)
    world.clock.advance(2.0)
    assert len(world.streams) == 2
    infos = queueing.picks + ready.picks
    assert [info.attributes.get(CLUSTER) for info in infos] == ["orders"] * 3


@pytest.mark.spec("A31-11")
@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_rpc_ends_at_once_without_pick_or_stream_when_selector_returns_a_status(
    wait_for_ready: bool,
) -> None:
    world = ChannelWorld()
    picker = world.connect(FakeSelector(INTERNAL))
    _, observer = world.call(wait_for_ready=wait_for_ready)
    assert observer.status == INTERNAL
    assert not picker.picks
    assert not world.streams


@pytest.mark.spec("A31-12")
def test_no_cluster_stays_in_use_when_selector_returns_a_status() -> None:
    world = ChannelWorld()
    in_use: list[str] = []

    routes = iter([True, False, True])

    def answer() -> CallConfig | Status:
        if not next(routes):
            return INTERNAL
        in_use.append("orders")
        return CallConfig(MethodConfig(), on_commit=lambda: in_use.remove("orders"))

    world.connect(FakeSelector(answer))
    world.call()
    before = list(in_use)
    world.call()
    assert in_use == before == ["orders"]
    world.call()
    for stream in world.streams:
        stream.respond()
    assert in_use == []


@pytest.mark.spec("A31-13", "A31-14")
def test_new_selector_is_used_only_after_the_policy_was_updated() -> None:
    world = ChannelWorld()
    old, new = FakeSelector(PLAIN), FakeSelector(PLAIN)
    world.connect(old)
    world.policy.on_update = lambda: world.call() and None
    world.resolve(new)
    assert (len(old.selected), len(new.selected)) == (1, 0)
    assert old.is_closed
    world.policy.on_update = lambda: None
    world.call()
    assert (len(old.selected), len(new.selected)) == (1, 1)


@pytest.mark.spec("A31-15")
def test_a_picker_published_during_the_update_serves_the_new_selectors_first_rpc() -> None:
    """An RPC that waited for its selector is picked for by a picker that has its cluster."""

    class ByCluster(RecordingPicker):
        def __init__(self, clusters: dict[str, PickResult]) -> None:
            super().__init__(QUEUE)
            self.clusters = clusters

        def pick(self, info: PickInfo) -> PickResult:
            unknown = Fail(Status(StatusCode.INTERNAL, "unknown cluster"))
            return self.clusters.get(info.attributes.get(CLUSTER) or "", unknown)

    world = ChannelWorld()
    _, observer = world.call()
    world.policy.on_update = lambda: world.report(State.CONNECTING, ByCluster({"new": QUEUE}))
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "new")
    world.resolve(FakeSelector(CallConfig(MethodConfig(), attributes)))
    assert observer.is_running
    world.report(State.READY, ByCluster({"new": world.complete}))
    world.streams[0].respond()
    assert observer.status == OK
