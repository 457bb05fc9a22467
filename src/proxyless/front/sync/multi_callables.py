"""Multi-callables: the callables for one method that blocking channels create for stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base import EMPTY_METADATA, InvalidMetadataError, Status, StatusCode
from proxyless.front.channel_api import attach_rpc
from proxyless.front.conversions import (
    CLOSED,
    CLOSED_TO_CALLS,
    Deserializer,
    MetadataLike,
    Serializer,
    check_timeout,
    serialize,
    to_encoding,
    to_metadata,
)
from proxyless.front.credentials import (
    InCallersContext,
    UnsendableMetadata,
    to_call_credentials,
)
from proxyless.front.sync.calls import FinishedCall, FutureCall, InactiveRpcError, StreamCall
from proxyless.front.sync.outcomes import Outcome, StreamOutcome, UnaryOutcome
from proxyless.front.sync.requests import RequestFeeder
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.front.sync.channel import SyncChannel


# In Python 3.11 naming the member of an enum takes as long as a call, and every RPC uses it.
_OK: Final = StatusCode.OK


class _MultiCallable:
    """Starts the RPCs of one method."""

    def __init__(
        self, channel: SyncChannel, path: str, serializer: Serializer, deserializer: Deserializer
    ) -> None:
        self._channel = channel
        self._path = path
        self._serializer = serializer
        self._deserializer = deserializer

    def _prepare(
        self,
        outcome: Outcome,
        timeout: float | None,
        metadata: MetadataLike | None,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> None:
        """Create the call of an outcome, without starting it. May run in any thread."""
        channel, core = self._channel, outcome.binding.core
        encoding = channel.encoding
        if compression is not None:
            encoding = to_encoding(compression, encoding)
        pairs, refusal = EMPTY_METADATA, None
        if metadata:
            try:
                pairs = to_metadata(metadata)
            except InvalidMetadataError as error:
                refusal = UnsendableMetadata(error)
        own_credentials = None
        if credentials is not None:
            own_credentials = core.combine_credentials(to_call_credentials(credentials))
        # Last: from here on stats plugins trace the call, so nothing may raise.
        outcome.call = core.call_type(
            core,
            channel.method(core, self._path),
            outcome,
            pairs,
            check_timeout(timeout),
            wait_for_ready,
            encoding,
        )
        if own_credentials is not None:
            outcome.call.credentials = own_credentials
        if outcome.call.credentials is not None:
            outcome.call.credentials = InCallersContext(outcome.call.credentials)
        if refusal is not None:
            outcome.call.credentials = refusal

    def _start_with(self, outcome: Outcome, request: Any) -> None:
        """Start the call with its request, or with an iterator of requests."""
        raise NotImplementedError

    def _start(self, closed: str, request: Any, *options: Any) -> UnaryOutcome:
        """Start an RPC with one response; the options are those of `_prepare`."""
        outcome = UnaryOutcome(self._channel.bind(closed), self._deserializer, self._channel)
        self._prepare(outcome, *options)
        self._start_with(outcome, request)
        return outcome


class _UnaryRequest(_MultiCallable):
    """Starts RPCs with one request."""

    def _start_with(self, outcome: Outcome, request: Any) -> None:
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            # The call is not started; stats plugins record its end.
            outcome.call.end_unstarted(StreamEnd(message))
            raise InactiveRpcError(StreamEnd(message))
        outcome.request = message
        outcome.binding.background.post(outcome.start)


class _StreamRequest(_MultiCallable):
    """Starts RPCs with streamed requests."""

    def _start_with(self, outcome: Outcome, request: Any) -> None:
        feeder = outcome.feeder = RequestFeeder(outcome, self._serializer, request)
        outcome.binding.background.post(outcome.start)
        feeder.start()


class UnaryUnaryMultiCallable(_UnaryRequest, grpc.UnaryUnaryMultiCallable):
    """Starts unary RPCs."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        outcome = self._start(
            CLOSED, request, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome)

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, FinishedCall]:
        outcome = self._start(
            CLOSED, request, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome), _finished(outcome)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> FutureCall:
        outcome = self._start(
            CLOSED_TO_CALLS, request, timeout, metadata, credentials, wait_for_ready, compression
        )
        return FutureCall(outcome)


class UnaryStreamMultiCallable(_UnaryRequest, grpc.UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamCall:
        outcome = StreamOutcome(
            self._channel.bind(CLOSED_TO_CALLS), self._deserializer, self._channel
        )
        self._prepare(outcome, timeout, metadata, credentials, wait_for_ready, compression)
        self._start_with(outcome, request)
        return StreamCall(outcome)


class StreamUnaryMultiCallable(_StreamRequest, grpc.StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        outcome = self._start(
            CLOSED, request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome)

    def with_call(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, FinishedCall]:
        outcome = self._start(
            CLOSED, request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome), _finished(outcome)

    def future(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> FutureCall:
        outcome = self._start(
            CLOSED_TO_CALLS,
            request_iterator,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
        )
        return FutureCall(outcome)


class StreamStreamMultiCallable(_StreamRequest, grpc.StreamStreamMultiCallable):
    """Starts RPCs with streamed requests and responses."""

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamCall:
        outcome = StreamOutcome(
            self._channel.bind(CLOSED_TO_CALLS), self._deserializer, self._channel
        )
        self._prepare(outcome, timeout, metadata, credentials, wait_for_ready, compression)
        self._start_with(outcome, request_iterator)
        return StreamCall(outcome)


def _wait_response(outcome: UnaryOutcome) -> Any:
    """Return the response, or raise. An exception while waiting (Ctrl-C) cancels the RPC."""
    try:
        end = outcome.wait_end()
    except BaseException:
        outcome.cancel()
        raise
    assert end is not None, "only a wait with a timeout returns None"
    if end.status.code is not _OK:
        error = InactiveRpcError(end, outcome.head or EMPTY_METADATA)
        raise attach_rpc(error, outcome.call, outcome.binding.background.call)
    return outcome.response


def _finished(outcome: UnaryOutcome) -> FinishedCall:
    assert outcome.end is not None, "called after _wait_response"
    call = FinishedCall(outcome.end, outcome.head or EMPTY_METADATA, outcome.response)
    call.rpc = outcome.call
    return call
