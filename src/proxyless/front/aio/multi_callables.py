"""Multi-callables: the callables for one method that grpc.aio channels hand to stubs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
import grpc.aio

from proxyless.base import EMPTY_METADATA, InvalidMetadataError, Status
from proxyless.front.aio.calls import (
    RequestIterator,
    StreamStreamCall,
    StreamUnaryCall,
    UnaryStreamCall,
    UnaryUnaryCall,
)
from proxyless.front.aio.interceptors import (
    CallSpec,
    InterceptedStreamStreamCall,
    InterceptedStreamUnaryCall,
    InterceptedUnaryStreamCall,
    InterceptedUnaryUnaryCall,
    Said,
)
from proxyless.front.aio.outcomes import StreamOutcome
from proxyless.front.conversions import (
    Deserializer,
    Serializer,
    check_timeout,
    serialize,
    to_encoding,
    to_metadata,
)
from proxyless.front.credentials import UnsendableMetadata, to_call_credentials

if TYPE_CHECKING:
    from proxyless.channel import Call, Channel, Method
    from proxyless.front.aio.channel import AioChannel

MetadataLike = Iterable[tuple[str, str | bytes]]


class _MultiCallable:
    """Starts the RPCs of one method."""

    def __init__(
        self,
        channel: AioChannel,
        path: str,
        serializer: Serializer,
        deserializer: Deserializer,
        interceptors: Sequence[Any],
    ) -> None:
        self._channel = channel
        self._path = path
        self._serializer = serializer
        self._deserializer = deserializer
        self._interceptors = interceptors
        self._method: Method | None = None

    def _new_call(self, core: Channel, outcome: Any, said: Said) -> Call:
        """A call that is not started yet, and knows its outcome as its outcome knows it."""
        path, timeout, metadata, credentials, wait_for_ready, compression = said
        method = self._method
        if method is None or method.path != path:
            method = core.method(path, is_registered=path in self._channel.registered)
            if path == self._path:
                self._method = method
        encoding = self._channel.encoding
        if compression is not None:
            encoding = to_encoding(compression, encoding)
        pairs, refusal = EMPTY_METADATA, None
        if metadata:
            try:
                pairs = to_metadata(metadata)
            except InvalidMetadataError as error:
                refusal = UnsendableMetadata(error)
        call = core.call_type(
            core,
            method,
            outcome,
            pairs,
            None if timeout is None else check_timeout(timeout),
            wait_for_ready,
            encoding,
        )
        if credentials is not None:
            if not core.options.is_private:
                raise grpc.aio.UsageError("Call credentials are only valid on secure channels")
            call.credentials = core.combine_credentials(to_call_credentials(credentials))
        if refusal is not None:
            call.credentials = refusal
        outcome.core = call
        return call

    def _start_with_request(self, call: Call, request: object) -> None:
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            call.start_failed(message)
        else:
            call.start_unary(message)


class UnaryUnaryMultiCallable(_MultiCallable, grpc.aio.UnaryUnaryMultiCallable):
    """Starts unary RPCs."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.UnaryUnaryCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedUnaryUnaryCall(
                self._interceptors, self._start, CallSpec(*said), request
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request)

    def _start(self, said: Said, request: Any) -> UnaryUnaryCall:
        core = self._channel.core()
        call = UnaryUnaryCall(self._channel.loop, self._deserializer)
        self._start_with_request(self._new_call(core, call, said), request)
        call.is_starting = False
        return call


class UnaryStreamMultiCallable(_MultiCallable, grpc.aio.UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.UnaryStreamCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedUnaryStreamCall(
                self._interceptors, self._start, CallSpec(*said), request
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request)

    def _start(self, said: Said, request: Any) -> UnaryStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = UnaryStreamCall(outcome)
        self._start_with_request(self._new_call(core, outcome, said), request)
        outcome.is_starting = False
        return call


class StreamUnaryMultiCallable(_MultiCallable, grpc.aio.StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamUnaryCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedStreamUnaryCall(
                self._interceptors, self._start, CallSpec(*said), request_iterator
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request_iterator)

    def _start(self, said: Said, requests: RequestIterator | None) -> StreamUnaryCall:
        core = self._channel.core()
        call = StreamUnaryCall(self._channel.loop, self._deserializer, self._serializer)
        self._new_call(core, call, said).start()
        call.is_starting = False
        call.start_writing(requests)
        return call


class StreamStreamMultiCallable(_MultiCallable, grpc.aio.StreamStreamMultiCallable):
    """Starts RPCs with streams both ways."""

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamStreamCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedStreamStreamCall(
                self._interceptors, self._start, CallSpec(*said), request_iterator
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request_iterator)

    def _start(self, said: Said, requests: RequestIterator | None) -> StreamStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = StreamStreamCall(outcome, self._serializer)
        self._new_call(core, outcome, said).start()
        outcome.is_starting = False
        call.start_writing(requests)
        return call


class Kinds(NamedTuple):
    """The classes of multi-callables that a channel makes, by the kind of method."""

    unary_unary: type[UnaryUnaryMultiCallable]
    unary_stream: type[UnaryStreamMultiCallable]
    stream_unary: type[StreamUnaryMultiCallable]
    stream_stream: type[StreamStreamMultiCallable]


CHANNEL_KINDS: Final = Kinds(
    UnaryUnaryMultiCallable,
    UnaryStreamMultiCallable,
    StreamUnaryMultiCallable,
    StreamStreamMultiCallable,
)
