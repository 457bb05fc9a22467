"""grpcio clients, as peers of our server.

One interface to make a call and to get its result, on `grpc.aio` and on blocking channels.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from proxyless.base import Metadata
from tests.worlds.transports import PATIENCE_S, SERVICE

# More calls at a time than any test has under way.
_THREADS: Final = 64

Kind = str
UNARY_UNARY: Final[Kind] = "unary_unary"
STREAM_UNARY: Final[Kind] = "stream_unary"
UNARY_STREAM: Final[Kind] = "unary_stream"
STREAM_STREAM: Final[Kind] = "stream_stream"
KINDS: Final = (UNARY_UNARY, STREAM_UNARY, UNARY_STREAM, STREAM_STREAM)


@dataclass(frozen=True)
class Outcome:
    """All results of a call."""

    messages: list[bytes]
    code: grpc.StatusCode
    details: str
    initial: Metadata
    trailing: Metadata


@dataclass(frozen=True)
class ChannelOptions:
    """Options of a channel."""

    credentials: Any = None
    compression: Any = None
    options: Sequence[tuple[str, Any]] = field(default_factory=list)

    def arguments(self, target: str) -> dict[str, Any]:
        arguments = {
            "target": target,
            # Otherwise channels to one address share a connection, and tests each other's.
            "options": [("grpc.use_local_subchannel_pool", 1), *self.options],
            "compression": self.compression,
        }
        return arguments | ({"credentials": self.credentials} if self.credentials else {})


class GrpcioClient(ABC):
    """A channel to one server."""

    def __init__(self, target: str, options: ChannelOptions) -> None:
        arguments = options.arguments(target)
        secure = "credentials" in arguments
        module = self._module
        self._channel = (module.secure_channel if secure else module.insecure_channel)(**arguments)

    _module: Any

    @abstractmethod
    async def call(
        self,
        kind: Kind,
        method: str,
        requests: Sequence[bytes],
        *,
        metadata: Metadata = (),
        timeout_s: float = PATIENCE_S,
    ) -> Outcome: ...

    @abstractmethod
    async def close(self) -> None: ...

    def _start(
        self,
        kind: Kind,
        method: str,
        requests: Sequence[bytes],
        metadata: Metadata,
        timeout_s: float,
    ) -> Any:  # noqa: ANN401 - grpc has no types
        request = requests[0] if kind.startswith("unary") else iter(requests)
        multicallable = getattr(self._channel, kind)(SERVICE + method)
        return self._begin(kind, multicallable)(request, metadata=metadata, timeout=timeout_s)

    def _begin(self, kind: Kind, multicallable: Any) -> Any:  # noqa: ANN401
        return multicallable


class AioClient(GrpcioClient):
    """On `grpc.aio`."""

    _module = grpc.aio

    async def call(
        self,
        kind: Kind,
        method: str,
        requests: Sequence[bytes],
        *,
        metadata: Metadata = (),
        timeout_s: float = PATIENCE_S,
    ) -> Outcome:
        call = self._start(kind, method, requests, metadata, timeout_s)
        messages: list[bytes] = []
        try:
            if kind.endswith("unary"):
                messages.append(await call)
            else:
                async for message in call:
                    messages.append(message)  # noqa: PERF401 - kept if the call fails
        except grpc.aio.AioRpcError:
            pass  # The status is read from the call.
        return Outcome(
            messages,
            await call.code(),
            await call.details(),
            tuple(await call.initial_metadata()),
            tuple(await call.trailing_metadata()),
        )

    async def close(self) -> None:
        await self._channel.close()


class SyncClient(GrpcioClient):
    """On blocking calls, each on a thread of its own."""

    _module = grpc

    def __init__(self, target: str, options: ChannelOptions) -> None:
        super().__init__(target, options)
        self._threads = ThreadPoolExecutor(_THREADS)

    async def call(
        self,
        kind: Kind,
        method: str,
        requests: Sequence[bytes],
        *,
        metadata: Metadata = (),
        timeout_s: float = PATIENCE_S,
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, self._call_blocking, kind, method, requests, metadata, timeout_s
        )

    def _call_blocking(self, kind: Kind, *arguments: Any) -> Outcome:  # noqa: ANN401
        call = self._start(kind, *arguments)
        messages: list[bytes] = []
        try:
            if kind.endswith("unary"):
                messages.append(call.result())
            else:
                for message in call:
                    messages.append(message)  # noqa: PERF402 - kept if the call fails
        except grpc.RpcError:
            pass
        return Outcome(
            messages,
            call.code(),
            call.details(),
            tuple(call.initial_metadata()),
            tuple(call.trailing_metadata()),
        )

    def _begin(self, kind: Kind, multicallable: Any) -> Any:  # noqa: ANN401
        return multicallable.future if kind.endswith("unary") else multicallable

    async def close(self) -> None:
        await asyncio.to_thread(self._channel.close)
        await asyncio.to_thread(self._threads.shutdown)


CLIENTS: Final[dict[str, type[GrpcioClient]]] = {"aio": AioClient, "sync": SyncClient}
