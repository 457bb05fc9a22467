"""Channel under test, with a fake resolver, policy, connection and clock.

The channel and its calls are real. The policy reports the state that the test sets; the streams
record what a call sends, and the test responds on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    EMPTY_METADATA,
    OK,
    Attributes,
    Endpoint,
    IpAddress,
    Metadata,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.channel import Call, CallConfig, Channel, ChannelOptions, LoopStack, SubchannelPool
from proxyless.channel.config_selector import CONFIG_SELECTOR
from proxyless.lb import Complete, Helper, Picker, PickInfo, PickResult, PolicyRegistry, Update
from proxyless.resolver import (
    ResolverContext,
    ResolverListener,
    ResolverRegistry,
    ResolverResult,
    Target,
)
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock, seeded_random
from proxyless.wire import StreamEnd
from proxyless.wire.headers import ResponseBlock
from proxyless.wire.messages import Unpacking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.wire import CallListener

PATH = "/pkg.Service/Method"
ENDPOINTS = (Endpoint((IpAddress("127.0.0.1", 80),), EMPTY_ATTRIBUTES),)
UNAVAILABLE = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))
UNPROCESSED = StreamEnd(Status(StatusCode.UNAVAILABLE, "going away"), is_unprocessed=True)


class FakeStream:
    """Stream of a call. Records what was sent; the test responds."""

    def __init__(self, block: bytes, listener: CallListener) -> None:
        self.block = block
        self.listener = listener
        self.messages: list[bytes] = []
        self.is_ended = False
        self.is_half_closed = False
        self.is_writable = True
        self.cancelled_with: Status | None = None
        self.is_held = False
        self.id = 1
        self.unpacked_bytes = 0
        self.queue = None
        # From the call, if messages may be compressed.
        self.unpacking: Unpacking | None = None
        self.requests = 0
        self.undelivered_end: StreamEnd | None = None

    def send_message(
        self, message: bytes, *, is_compressed: bool = False, end_stream: bool = False
    ) -> None:
        self.messages.append(message)
        self.is_half_closed = end_stream

    def close_sending(self) -> None:
        self.is_half_closed = True

    def cancel(self, status: Status) -> None:
        if not self.is_ended:
            self.cancelled_with = status
            self.end(StreamEnd(status))

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def keep_packed(self, unpacking: Unpacking) -> None:
        self.unpacking = unpacking

    def request_message(self) -> None:
        self.requests += 1

    def head(self, encoding: str = "identity") -> None:
        block = ResponseBlock(EMPTY_METADATA, encoding, False, None, StreamEnd(OK))
        self.listener.on_head(block)

    def end(self, end: StreamEnd) -> None:
        self.is_ended = True
        self.listener.on_end(end)

    def respond(self, message: bytes = b"reply") -> None:
        self.head()
        self.listener.on_message(message)
        self.end(StreamEnd(OK))


class FakeTransport:
    """Connection that accepts every stream."""

    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        # Errors by authority, as of a certificate with other names.
        self.refusals: dict[str, Status] = {}

    def refuse_authority(self, authority: str) -> Status | None:
        return self.refusals.get(authority)

    def open(self, block: bytes, listener: CallListener) -> FakeStream:
        self.streams.append(FakeStream(block, listener))
        return self.streams[-1]

    def open_unary(self, block: bytes, listener: CallListener, message: bytes) -> FakeStream:
        stream = self.open(block, listener)
        stream.messages.append(message)
        stream.is_half_closed = True
        return stream


class ConnectedSubchannel:
    """Subchannel with a connection, as far as a call uses it."""

    address = IpAddress("127.0.0.1", 80)
    attributes = EMPTY_ATTRIBUTES

    def __init__(self) -> None:
        self.transport: FakeTransport | None = FakeTransport()


class EmptyPool:
    """Pool of a channel whose policy creates no subchannels."""

    def connections_of(self, owner: object) -> list[object]:
        return []

    async def wait_released(self, owner: object) -> None:
        return


class RecordingPicker(Picker):
    """Picker that returns `result`, and records its picks."""

    __slots__ = ("picks", "result")

    def __init__(self, result: PickResult) -> None:
        self.result = result
        self.picks: list[PickInfo] = []

    def pick(self, info: PickInfo) -> PickResult:
        self.picks.append(info)
        return self.result


class StubPolicy:
    """Policy and its factory. Records its updates; the test reports by its helper."""

    name = "stub"

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.is_closed = True
        self.helper: Helper
        self.on_update: Callable[[], None] = lambda: None
        self.update_result = OK
        self.exits = 0

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if json.get("bad"):
            errors.add("is bad")
        return json

    def create(self, helper: Helper) -> StubPolicy:
        self.helper = helper
        self.is_closed = False
        return self

    def update(self, update: Update) -> Status:
        self.updates.append(update)
        self.on_update()
        return self.update_result

    def exit_idle(self) -> None:
        self.exits += 1

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        self.is_closed = True


class ScriptedResolver:
    """Resolver and its factory. The test publishes its results."""

    scheme = "stub"

    def __init__(self) -> None:
        self.started = 0
        self.is_closed = True
        self.reresolutions = 0
        self._listener: ResolverListener

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> ScriptedResolver:
        self._listener = listener
        self.is_closed = False
        return self

    def default_authority(self, target: Target) -> str:
        return "test.example"

    def start(self) -> None:
        self.started += 1

    def request_reresolution(self) -> None:
        self.reresolutions += 1

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        self.is_closed = True

    def publish(self, result: ResolverResult) -> Status:
        return self._listener.on_result(result)


class FakeSelector:
    """Config selector that returns `result` or calls it, and records the RPCs."""

    def __init__(self, result: CallConfig | Status | Callable[[], CallConfig | Status]) -> None:
        self._result = result
        self.selected: list[tuple[str, Metadata]] = []
        self.is_closed = False

    def select(self, path: str, metadata: Metadata) -> CallConfig | Status:
        self.selected.append((path, metadata))
        return self._result() if callable(self._result) else self._result

    def close(self) -> None:
        self.is_closed = True


@dataclass
class CallObserver:
    """Listener of a call that records its notifications."""

    heads: int = 0
    writable: int = 0
    messages: list[bytes] = field(default_factory=list)
    ends: list[StreamEnd] = field(default_factory=list)
    unpacking: Unpacking = Unpacking.AT_ONCE

    def on_head(self, metadata: Metadata) -> None:
        self.heads += 1

    def choose_unpacking(self) -> Unpacking:
        assert not self.heads, "chosen before the head"
        return self.unpacking

    def on_message(self, message: bytes) -> None:
        self.messages.append(message)

    def on_writable(self) -> None:
        self.writable += 1

    def on_end(self, end: StreamEnd) -> None:
        self.ends.append(end)

    @property
    def status(self) -> Status:
        assert len(self.ends) == 1, f"ended {len(self.ends)} times"
        return self.ends[0].status

    @property
    def is_running(self) -> bool:
        return not self.ends


class ChannelWorld:
    """Channel with one method, and the fakes that it uses."""

    def __init__(self, **options: object) -> None:
        self.clock = VirtualClock()
        self.policy = StubPolicy()
        self.resolver = ScriptedResolver()
        self.subchannel = ConnectedSubchannel()
        options.setdefault("service_config", {"loadBalancingConfig": [{"stub": {}}]})
        stack = LoopStack(
            self.clock,
            seeded_random(1),
            AsyncioNetwork(),
            DeadlineQueue(self.clock),
            cast("SubchannelPool", EmptyPool()),
        )
        self.channel = Channel(
            "stub:///service",
            ChannelOptions(**cast("Any", options)),
            stack,
            policies=PolicyRegistry([self.policy]),
            resolvers=ResolverRegistry([self.resolver], default_scheme="stub"),
        )
        self.method = self.channel.method(PATH)

    # Resolver, policy and connection

    def resolve(
        self,
        selector: FakeSelector | None = None,
        service_config: Mapping[str, object] | Status | None = None,
        endpoints: tuple[Endpoint, ...] | Status = ENDPOINTS,
    ) -> Status:
        attributes: Attributes = EMPTY_ATTRIBUTES
        if selector is not None:
            attributes = attributes.with_(CONFIG_SELECTOR, selector)
        return self.resolver.publish(ResolverResult(endpoints, service_config, attributes))

    def report(self, state: State, picker: Picker) -> None:
        self.policy.helper.update_state(state, picker)

    def ready(self) -> RecordingPicker:
        """Report READY; every pick completes on the only subchannel."""
        picker = RecordingPicker(self.complete)
        self.report(State.READY, picker)
        return picker

    @property
    def complete(self) -> Complete:
        return Complete(cast("Any", self.subchannel))

    def connect(self, selector: FakeSelector | None = None) -> RecordingPicker:
        """Connect, publish endpoints, and report READY."""
        self.channel.request_connection()
        self.resolve(selector)
        return self.ready()

    def expect_state(self, state: State) -> None:
        assert self.channel.state is state

    def expect_released(self, is_released: bool) -> None:
        assert (self.policy.is_closed, self.resolver.is_closed) == (is_released, is_released)

    # Application

    def call(
        self,
        message: bytes | None = b"request",
        *,
        timeout_s: float | None = None,
        wait_for_ready: bool | None = None,
    ) -> tuple[Call, CallObserver]:
        """Start a unary RPC, or without a message a streaming one."""
        observer = CallObserver()
        make_call = self.channel.call_type
        call = make_call(self.channel, self.method, observer, (), timeout_s, wait_for_ready)
        if message is None:
            call.start()
        else:
            call.start_unary(message)
        return call, observer

    @property
    def streams(self) -> list[FakeStream]:
        transport = self.subchannel.transport
        return [] if transport is None else transport.streams
