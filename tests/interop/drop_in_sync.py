"""Comparison of the blocking `proxyless` with `grpc`: the same scenario runs on both stacks.

As `drop_in`, for blocking channels: a scenario is a function of a `SyncStage`, which has a grpcio
server on threads and the stack that calls it. It returns its observations as plain values, which
must be equal on both. Metadata controls the server as in `drop_in`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final, TypeAlias

import grpc

import proxyless
from tests.generated_protos import Protos
from tests.interop.drop_in import plain
from tests.worlds.transports import PATIENCE_S

STACKS: Final[dict[str, ModuleType]] = {"grpcio": grpc, "proxyless": proxyless}
_THREADS: Final = 40
_ALWAYS: Final = (("grpc.so_reuseport", 0),)

# grpcio's objects, and the generated code.
Untyped: TypeAlias = Any


def until_sync(happens: Callable[[], object], what: str) -> None:
    """Wait for a condition by polling."""
    end_s = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end_s, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.002)


class SyncMethods:
    """The methods of both services, on threads, and a log of their events."""

    def __init__(self, protos: Protos) -> None:
        self._greetings = protos.helloworld
        self._routes = protos.route_guide
        self.events: list[str] = []

    def _begin(self, name: str, context: Untyped) -> None:
        self.events.append(f"{name} started")
        context.add_callback(lambda: self.events.append(f"{name} over"))
        metadata = tuple(context.invocation_metadata())
        if head := [tuple(pair) for pair in metadata if pair[0].startswith("x-")]:
            context.send_initial_metadata(head)
        trailing = [tuple(pair) for pair in metadata if pair[0].startswith("t-")]
        context.set_trailing_metadata(trailing)

    def _end(self, context: Untyped) -> None:
        match dict(context.invocation_metadata()).get("then"):
            case "abort":
                context.set_trailing_metadata((("reason", "it is Sunday"),))
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 %, né")
            case "raise":
                raise RuntimeError("the handler broke")
            case "hang":
                ended = threading.Event()
                if context.add_callback(ended.set):
                    assert ended.wait(PATIENCE_S)
            case _:
                pass

    def say_hello(self, request: Untyped, context: Untyped) -> Untyped:
        self._begin("SayHello", context)
        self._end(context)
        padding = bytes(request.reply_padding_bytes)
        return self._greetings.HelloReply(message=f"hello, {request.name}", padding=padding)

    def describe(self, request: Untyped, context: Untyped) -> Untyped:
        metadata = tuple(context.invocation_metadata())
        time_remaining = context.time_remaining()
        return self._greetings.Description(
            user_agent=dict(metadata)["user-agent"],
            time_remaining=None if (time_remaining or 1e9) > 1e6 else time_remaining,
            keys=[key for key, _ in metadata],
        )

    def list_places(self, way: Untyped, context: Untyped) -> Iterator[Untyped]:
        self._begin("ListPlaces", context)
        for number in range(way.places):
            yield self._routes.Place(name=f"place {number}", photo=bytes(way.photo_bytes))
            self.events.append(f"place {number} sent")
        self._end(context)

    def measure_way(self, points: Iterator[Untyped], context: Untyped) -> Untyped:
        self._begin("MeasureWay", context)
        count = length = 0
        if dict(context.invocation_metadata()).get("then") != "hang":
            for point in points:
                count += 1
                length += abs(point.x) + abs(point.y)
        self._end(context)
        return self._routes.Summary(points=count, length=length)

    def chat(self, notes: Iterator[Untyped], context: Untyped) -> Iterator[Untyped]:
        self._begin("Chat", context)
        for number, note in enumerate(notes, 1):
            yield self._routes.Note(text=note.text, number=number)
        self._end(context)


class SyncServer:
    """Both services on a grpcio server with threads, at `target`."""

    def __init__(
        self,
        protos: Protos,
        *,
        options: Sequence[tuple[str, Untyped]] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.methods = SyncMethods(protos)
        self._pool = ThreadPoolExecutor(_THREADS)
        self._server = grpc.server(self._pool, options=(*_ALWAYS, *options))
        self._add_services(protos)
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def _add_services(self, protos: Protos) -> None:
        greeter = protos.helloworld_grpc.GreeterServicer()
        greeter.SayHello = self.methods.say_hello
        greeter.Describe = self.methods.describe
        protos.helloworld_grpc.add_GreeterServicer_to_server(greeter, self._server)
        guide = protos.route_guide_grpc.RouteGuideServicer()
        guide.ListPlaces = self.methods.list_places
        guide.MeasureWay = self.methods.measure_way
        guide.Chat = self.methods.chat
        protos.route_guide_grpc.add_RouteGuideServicer_to_server(guide, self._server)

    @property
    def events(self) -> list[str]:
        return self.methods.events

    def stop(self) -> None:
        assert self._server.stop(None).wait(PATIENCE_S)
        self._pool.shutdown()


class SyncStage:
    """One stack, a server for it to call, and the channels of the scenario."""

    def __init__(self, stack: Untyped, protos: Protos, exits: ExitStack) -> None:
        self.stack = stack
        self.protos = protos
        self._exits = exits
        self._server: SyncServer | None = None
        self._channel: Untyped = None

    def serve(self, **options: Untyped) -> SyncServer:
        """Start a server, with the arguments of `SyncServer`."""
        self._server = SyncServer(self.protos, **options)
        self._exits.callback(self._server.stop)
        return self._server

    @property
    def server(self) -> SyncServer:
        assert self._server is not None, "the scenario has a server"
        return self._server

    @property
    def events(self) -> list[str]:
        return self.server.events

    def until_event(self, event: str) -> None:
        until_sync(lambda: event in self.events, event)

    # Channels and stubs

    def open(self, target: str | None = None, **options: Untyped) -> Untyped:
        """A channel of this stack's, to be closed with the stage."""
        channel = self.stack.insecure_channel(target or self.server.target, **options)
        self._exits.callback(channel.close)
        return channel

    def open_secure(self, credentials: Untyped, **options: Untyped) -> Untyped:
        channel = self.stack.secure_channel(self.server.target, credentials, **options)
        self._exits.callback(channel.close)
        return channel

    @property
    def channel(self) -> Untyped:
        if self._channel is None:
            self._channel = self.open()
        return self._channel

    def greeter_on(self, channel: Untyped) -> Untyped:
        return self.protos.helloworld_grpc.GreeterStub(channel)

    def guide_on(self, channel: Untyped) -> Untyped:
        return self.protos.route_guide_grpc.RouteGuideStub(channel)

    @property
    def greeter(self) -> Untyped:
        return self.greeter_on(self.channel)

    @property
    def guide(self) -> Untyped:
        return self.guide_on(self.channel)

    # Messages

    def hello(self, name: str = "you", **fields: Untyped) -> Untyped:
        return self.protos.helloworld.HelloRequest(name=name, **fields)

    def points(self, count: int) -> Iterator[Untyped]:
        return (self.protos.route_guide.Point(x=number, y=1) for number in range(count))

    def way(self, places: int, photo_bytes: int = 0) -> Untyped:
        return self.protos.route_guide.Way(places=places, photo_bytes=photo_bytes)

    def notes(self, *texts: str) -> Iterator[Untyped]:
        return (self.protos.route_guide.Note(text=text) for text in texts)


Scenario = Callable[[SyncStage], Untyped]


class BothSync:
    """Runs a scenario on each stack and compares the results."""

    def __init__(self, protos: Protos) -> None:
        self._protos = protos

    def __call__(self, scenario: Scenario, **server: Untyped) -> Untyped:
        """The result of the scenario on both; `server` is for `SyncServer`.

        A difference must show twice, as in `drop_in`.
        """
        for _ in range(2):
            theirs, ours = [self.run_scenario(scenario, stack, server) for stack in STACKS.values()]
            if ours == theirs:
                return ours
        raise AssertionError(f"grpcio: {theirs!r}\nours:   {ours!r}")

    def ours(self, scenario: Scenario, **server: Untyped) -> Untyped:
        """The result of the scenario on our stack alone."""
        return self.run_scenario(scenario, proxyless, server)

    def run_scenario(self, scenario: Scenario, stack: Untyped, server: Untyped) -> Untyped:
        with ExitStack() as exits:
            stage = SyncStage(stack, self._protos, exits)
            stage.serve(**server)
            return scenario(stage)


# Observations as plain values


def outcome_of(function: Callable[[], Untyped]) -> tuple[Untyped, ...]:
    """The result of calling, or the exception."""
    try:
        return ("returned", function())
    except grpc.RpcError as error:
        return ("RpcError", isinstance(error, grpc.Call), *describe(error).items())
    except Exception as error:
        return (type(error).__name__,)


def describe(call: Untyped) -> dict[str, Untyped]:
    """All results of a call after it has ended."""
    return {
        "code": call.code(),
        "details": call.details(),
        "initial": plain(call.initial_metadata()),
        "trailing": plain(call.trailing_metadata()),
        "done": call.done(),
        "running": call.running(),
        "cancelled": call.cancelled(),
    }


def collect(call: Iterable[Untyped]) -> list[Untyped]:
    return list(call)
