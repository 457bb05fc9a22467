"""Samples of a running process, one after each interval.

The live service of the process streams them. A process without it is polled over CSDS.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.cli.admin_client import (
    CHANNEL_OPTIONS,
    CSDS_FETCH,
    LIVE_SERVICE,
    TIMEOUT_S,
    describe_failure,
    is_unimplemented,
    live_message,
    status_request,
    status_response,
)
from proxyless.cli.top.csds_samples import read_clients
from proxyless.cli.top.live_samples import read_snapshot
from proxyless.observe import read_status
from proxyless.protos import message_class

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxyless.cli.top.samples import Sample


class SourceError(Exception):
    """The process does not answer. The argument is a text for the user."""


class ProcessSource:
    """The samples of one process."""

    def __init__(self, address: str, interval_s: float, target: str = "") -> None:
        self._address: Final = address
        self._interval_s: Final = interval_s
        self._target: Final = target
        # Never set: waiting for it with a timeout is a pause that can be cancelled.
        self._pause: Final = asyncio.Event()

    async def pause(self) -> None:
        """Wait for one interval."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._pause.wait()

    async def samples(self) -> AsyncIterator[Sample]:
        """Samples until the process ends. Raises SourceError when it does not answer."""
        async with grpc.aio.insecure_channel(self._address, CHANNEL_OPTIONS) as channel:
            try:
                async for snapshot in self._watch(channel):
                    yield read_snapshot(snapshot)
            except grpc.RpcError as error:
                if not is_unimplemented(error):
                    raise SourceError(describe_failure(self._address, error)) from None
            else:
                raise SourceError(f"{self._address!r} ended the stream of snapshots")
            while True:
                yield await self._poll(channel)
                await self.pause()

    def _watch(self, channel: Any) -> Any:  # noqa: ANN401 - grpcio has no types
        request = live_message("WatchRequest")
        request.request.target = self._target
        request.interval.FromNanoseconds(round(self._interval_s * 1e9))
        call = channel.unary_stream(
            f"/{LIVE_SERVICE}/WatchSnapshots",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_class("proxyless.live.v1.Snapshot").FromString,
        )
        return call(request)

    async def _poll(self, channel: Any) -> Sample:  # noqa: ANN401 - grpcio has no types
        request = status_request(has_contents=True)
        call = channel.unary_unary(
            CSDS_FETCH,
            request_serializer=type(request).SerializeToString,
            response_deserializer=status_response().FromString,
        )
        try:
            response = await call(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise SourceError(describe_failure(self._address, error)) from None
        clients = [client for client in read_status(response) if self._target in {"", client.scope}]
        return read_clients(clients, datetime.now(UTC).timestamp())
