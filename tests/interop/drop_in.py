"""Comparison of `proxyless.aio` with `grpc.aio`: the same scenario runs on both stacks.

A scenario is a function of a `Stage`: a server of grpcio's, and the stack that calls it. It returns
its observations as plain values. `Both` runs it with `grpc.aio` and with `proxyless.aio`, and the
results must be equal. The stubs and the servicers are generated, and not modified.

Metadata of a call controls the server:

    x-…    comes back as initial metadata
    t-…    comes back as trailing metadata
    then   after the responses: `abort`, `cancel` (abort with that code), `raise` an exception, or
           `hang` until the client is gone
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

import proxyless.aio
from tests.generated_protos import Protos
from tests.worlds.transports import PATIENCE_S, until

STACKS: Final[dict[str, ModuleType]] = {"grpcio": grpc.aio, "proxyless": proxyless.aio}

HANG: Final = (("then", "hang"),)
ABORT: Final = (("then", "abort"),)
CANCEL: Final = (("then", "cancel"),)
RAISE: Final = (("then", "raise"),)

# The kinds of calls, each with the method of the route guide that is of this kind.
METHODS: Final = {
    "unary_unary": "FindPlace",
    "unary_stream": "ListPlaces",
    "stream_unary": "MeasureWay",
    "stream_stream": "Chat",
}
KINDS: Final = tuple(METHODS)

# Two servers must not share a port by chance: then each would get some of the calls.
_ALWAYS: Final = (("grpc.so_reuseport", 0),)

# grpcio's objects, and the generated code.
Untyped: TypeAlias = Any
Pairs = Iterable[tuple[str, str | bytes]]


# The server


class Methods:
    """The methods of both services, and a log of their events."""

    def __init__(self, protos: Protos) -> None:
        self._greetings = protos.helloworld
        self._routes = protos.route_guide
        self.events: list[str] = []

    @asynccontextmanager
    async def _steered(self, name: str, context: Untyped) -> AsyncIterator[None]:
        """Act on the metadata before and after the method's own work."""
        self.events.append(f"{name} started")
        end = "cancelled"
        context.add_done_callback(lambda _: self.events.append(f"{name} {end}"))
        metadata = tuple(context.invocation_metadata())
        if head := [pair for pair in metadata if pair[0].startswith("x-")]:
            await context.send_initial_metadata(head)
        context.set_trailing_metadata([pair for pair in metadata if pair[0].startswith("t-")])
        try:
            yield
            await _go_on(dict(metadata).get("then"), context)
        except Exception:
            end = "failed"
            raise
        end = "finished"

    async def say_hello(self, request: Untyped, context: Untyped) -> Untyped:
        async with self._steered("SayHello", context):
            padding = bytes(request.reply_padding_bytes)
            return self._greetings.HelloReply(message=f"hello, {request.name}", padding=padding)

    async def describe(self, request: Untyped, context: Untyped) -> Untyped:
        metadata = tuple(context.invocation_metadata())
        return self._greetings.Description(
            user_agent=dict(metadata)["user-agent"],
            time_remaining=context.time_remaining(),
            keys=[key for key, _ in metadata],
        )

    async def find_place(self, point: Untyped, context: Untyped) -> Untyped:
        async with self._steered("FindPlace", context):
            return self._routes.Place(name=f"{point.x}/{point.y}", point=point)

    async def list_places(self, way: Untyped, context: Untyped) -> AsyncIterator[Untyped]:
        async with self._steered("ListPlaces", context):
            for number in range(way.places):
                yield self._routes.Place(name=f"place {number}", photo=bytes(way.photo_bytes))

    async def measure_way(self, points: AsyncIterator[Untyped], context: Untyped) -> Untyped:
        async with self._steered("MeasureWay", context):
            count = length = 0
            async for point in points:
                self.events.append(f"point {point.x}/{point.y}")
                count += 1
                length += abs(point.x) + abs(point.y)
            return self._routes.Summary(points=count, length=length)

    async def chat(self, notes: AsyncIterator[Untyped], context: Untyped) -> AsyncIterator[Untyped]:
        async with self._steered("Chat", context):
            number = 0
            async for note in notes:
                number += 1
                yield self._routes.Note(text=note.text, number=number)


async def _go_on(then: object, context: Untyped) -> None:
    match then:
        case "abort":
            trailing = (*context.trailing_metadata(), ("reason", "it is Sunday"))
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 %, né", trailing
            )
        case "cancel":
            await context.abort(grpc.StatusCode.CANCELLED, "changed my mind")
        case "raise":
            raise RuntimeError("the handler broke")
        case "hang":
            await asyncio.Event().wait()
        case _:
            pass


def add_services(server: Untyped, protos: Protos, methods: Methods) -> None:
    """Register the generated servicers, with these methods in place of their own."""
    greeter = protos.helloworld_grpc.GreeterServicer()
    greeter.SayHello = methods.say_hello
    greeter.Describe = methods.describe
    protos.helloworld_grpc.add_GreeterServicer_to_server(greeter, server)
    guide = protos.route_guide_grpc.RouteGuideServicer()
    guide.FindPlace = methods.find_place
    guide.ListPlaces = methods.list_places
    guide.MeasureWay = methods.measure_way
    guide.Chat = methods.chat
    protos.route_guide_grpc.add_RouteGuideServicer_to_server(guide, server)


class DropInServer:
    """Both services on a grpcio server, at `target`."""

    def __init__(
        self,
        protos: Protos,
        *,
        address: str = "127.0.0.1:0",
        options: Sequence[tuple[str, Untyped]] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.methods = Methods(protos)
        self._server = grpc.aio.server(options=(*_ALWAYS, *options))
        add_services(self._server, protos, self.methods)
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.target = address.replace(":0", f":{port}")

    @property
    def target_by_name(self) -> str:
        return self.target.replace("127.0.0.1", "localhost")

    @property
    def events(self) -> list[str]:
        return self.methods.events

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float | None = None) -> None:
        await stop_server(self._server, grace_s)


async def stop_server(server: Untyped, grace_s: float | None = None) -> None:
    """Stop a server of grpcio's, and wait for the tasks of its handlers, which it does not."""
    await server.stop(grace_s)

    def are_handlers_gone() -> bool:
        names = (task.get_name() for task in asyncio.all_tasks())
        return not any(name.startswith(("rpc_task", "HandleExceptions")) for name in names)

    await until(are_handlers_gone, "grpcio's handlers to end")


# The stage


class Stage:
    """One stack, a server for it to call, and the channels of the scenario."""

    def __init__(self, aio: Untyped, protos: Protos, exits: AsyncExitStack) -> None:
        self.aio = aio
        self.protos = protos
        self.messages = protos.helloworld
        self.routes = protos.route_guide
        self._exits = exits
        self._server: DropInServer | None = None
        self._channel: Untyped = None

    async def serve(self, **options: Untyped) -> DropInServer:
        """Start a server, with the arguments of `DropInServer`."""
        self._server = server = DropInServer(self.protos, **options)
        await server.start()
        self._exits.push_async_callback(server.stop)
        return server

    @property
    def server(self) -> DropInServer:
        assert self._server is not None, "the scenario has a server"
        return self._server

    @property
    def events(self) -> list[str]:
        return self.server.events

    async def until_event(self, event: str) -> None:
        await until(lambda: event in self.events, event)

    # Channels and stubs

    def open(self, target: str | None = None, **options: Untyped) -> Untyped:
        """A channel of this stack's, to be closed with the stage."""
        channel = self.aio.insecure_channel(target or self.server.target, **options)
        self._exits.push_async_callback(channel.close)
        return channel

    def open_secure(
        self, credentials: Untyped, target: str | None = None, **options: Untyped
    ) -> Untyped:
        target = target or self.server.target
        channel = self.aio.secure_channel(target, credentials, **options)
        self._exits.push_async_callback(channel.close)
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
        return self.messages.HelloRequest(name=name, **fields)

    def point(self, x: int = 1, y: int = 2) -> Untyped:
        return self.routes.Point(x=x, y=y)

    def points(self, count: int) -> list[Untyped]:
        return [self.point(number, 1) for number in range(count)]

    def way(self, places: int, photo_bytes: int = 0) -> Untyped:
        return self.routes.Way(places=places, photo_bytes=photo_bytes)

    def note(self, text: str) -> Untyped:
        return self.routes.Note(text=text)


# Calls of every kind


def start(stage: Stage, kind: str, channel: Untyped = None, **options: Untyped) -> Untyped:
    """A call of this kind, with all its requests."""
    requests = {
        "unary_unary": stage.point(),
        "unary_stream": stage.way(2),
        "stream_unary": stage.points(2),
        "stream_stream": [stage.note("a"), stage.note("b")],
    }
    guide = stage.guide_on(channel or stage.channel)
    return getattr(guide, METHODS[kind])(requests[kind], **options)


async def finish(kind: str, call: Untyped) -> tuple[Untyped, ...]:
    """The responses and the status of a call."""
    return await outcome_of(collect(call) if kind.endswith("_stream") else call)


# Interceptors of every kind

# The body of an interceptor: continuation, details and request.
Act = Callable[[Untyped, Untyped, Untyped], Awaitable[Untyped]]

INTERCEPTORS: Final = {
    "unary_unary": grpc.aio.UnaryUnaryClientInterceptor,
    "unary_stream": grpc.aio.UnaryStreamClientInterceptor,
    "stream_unary": grpc.aio.StreamUnaryClientInterceptor,
    "stream_stream": grpc.aio.StreamStreamClientInterceptor,
}


def interceptors(act: Act, kinds: Iterable[str] = KINDS) -> list[Untyped]:
    """One for each kind of call, and each does the same."""

    async def method(
        _self: object, proceed: Untyped, details: Untyped, request: Untyped
    ) -> Untyped:
        return await act(proceed, details, request)

    return [
        type("Interceptor", (INTERCEPTORS[kind],), {f"intercept_{kind}": method})()
        for kind in kinds
    ]


async def hand_on(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
    return await proceed(details, request)


Scenario = Callable[[Stage], Awaitable[Untyped]]


async def run_scenario(
    scenario: Scenario, aio: Untyped, protos: Protos, **server: Untyped
) -> Untyped:
    """The result of a scenario on a stack; `server` is for `DropInServer`."""
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        stage = Stage(aio, protos, exits)
        await stage.serve(**server)
        return await scenario(stage)


async def on_proxyless(protos: Protos, scenario: Scenario, **server: Untyped) -> Untyped:
    """For what grpcio does not do, or not as well."""
    return await run_scenario(scenario, proxyless.aio, protos, **server)


class Both:
    """Runs a scenario on each stack and compares the results."""

    def __init__(self, protos: Protos) -> None:
        self._protos = protos

    async def __call__(self, scenario: Scenario, **server: Untyped) -> Untyped:
        """The result of the scenario on both.

        A difference must show twice: on a busy machine a deadline may pass before a server is
        heard, on one stack and not on the other.
        """
        for _ in range(2):
            stacks = STACKS.values()
            theirs, ours = [
                await run_scenario(scenario, aio, self._protos, **server) for aio in stacks
            ]
            if ours == theirs:
                return ours
        raise AssertionError(f"grpcio: {theirs!r}\nours:   {ours!r}")


# Observations as plain values


def plain(metadata: Pairs | None) -> object:
    """Metadata in one order: grpcio keeps it only among equal keys."""
    return None if metadata is None else sorted(map(tuple, metadata), key=lambda pair: pair[0])


_AROUND_DETAILS: Final = re.compile(r"Stream removed \((.*)\)")


def words_of(details: str) -> str:
    """Details without the text that grpcio sometimes adds when its own client ends a call."""
    around = _AROUND_DETAILS.fullmatch(details)
    return (details if around is None else around[1]).removeprefix("CLIENT: ")


async def outcome_of(awaitable: Awaitable[Untyped]) -> tuple[Untyped, ...]:
    """The result of awaiting, or the exception."""
    try:
        return ("returned", await awaitable)
    except asyncio.CancelledError:
        return ("CancelledError",)
    except grpc.aio.AioRpcError as error:
        initial, trailing = plain(error.initial_metadata()), plain(error.trailing_metadata())
        return (type(error).__name__, error.code(), words_of(error.details()), initial, trailing)
    except Exception as error:
        return (type(error).__name__, str(error))


async def describe(call: Untyped) -> dict[str, Untyped]:
    """All results of a call object after the call has ended."""
    return {
        "code": await call.code(),
        "details": words_of(await call.details()),
        "initial": plain(await call.initial_metadata()),
        "trailing": plain(await call.trailing_metadata()),
        "done": call.done(),
        "cancelled": call.cancelled(),
    }


async def read_messages(call: Untyped) -> list[Untyped]:
    """Every response, by `read`, until there is no more."""
    messages = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)
    return messages


async def collect(call: Untyped) -> list[Untyped]:
    """Every response, by iterating."""
    return [message async for message in call]
