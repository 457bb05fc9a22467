"""Multi-callables: the callables for one method that asyncio channels create for stubs."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

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
from proxyless.front.aio.outcomes import StreamOutcome
from proxyless.front.conversions import (
    Deserializer,
    MetadataLike,
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
    from proxyless.front.aio.interceptors import CallArguments, InterceptedCall

NO_LOOP: Final = "an asyncio channel is used outside of a running event loop"


class OutsideLoopError(RuntimeError):
    """A channel was used in a thread in which no event loop runs."""


class _MultiCallable:
    """Starts the RPCs of one method."""

    # The attribute of `Interceptors` with those that apply.
    kind: ClassVar[str]

    def __init__(
        self, channel: AioChannel, path: str, serializer: Serializer, deserializer: Deserializer
    ) -> None:
        self._channel = channel
        self._path = path
        self._serializer = serializer
        self._deserializer = deserializer
        self._interceptors = getattr(channel.interceptors, self.kind)
        self._method: Method | None = None

    def _start(self, arguments: CallArguments, requests: Any) -> Any:
        """Start an RPC with a request, or with an iterator of requests."""
        raise NotImplementedError

    def _start_outside_loop(self, arguments: CallArguments, requests: Any) -> Any:
        start = self._intercept if self._interceptors else self._start
        return self._channel.run_on_loop(lambda: start(arguments, requests))

    def _intercept(self, arguments: CallArguments, requests: Any) -> Any:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise OutsideLoopError(NO_LOOP) from None
        call = self._intercepted_type(loop, self._interceptors, self._start, arguments, requests)
        return self._channel.add_intercepted(call)

    @cached_property
    def _intercepted_type(self) -> type[InterceptedCall]:
        from proxyless.front.aio.interceptors import INTERCEPTED_CALLS  # noqa: PLC0415 - seldom

        return INTERCEPTED_CALLS[self.kind]

    def _new_call(self, core: Channel, outcome: Any, arguments: CallArguments) -> Call:
        """Create the call of an outcome, without starting it."""
        path, timeout, metadata, credentials, wait_for_ready, compression = arguments
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
        own_credentials = None
        if credentials is not None:
            if not core.options.is_private:
                raise grpc.aio.UsageError("Call credentials are only valid on secure channels")
            own_credentials = core.combine_credentials(to_call_credentials(credentials))
        # Last: from here on stats plugins trace the call, so nothing may raise.
        call = core.call_type(
            core,
            method,
            outcome,
            pairs,
            timeout if timeout is None or type(timeout) is float else check_timeout(timeout),
            wait_for_ready,
            encoding,
        )
        if own_credentials is not None:
            call.credentials = own_credentials
        if refusal is not None:
            call.credentials = refusal
        outcome.call = call
        return call

    def _start_with_request(self, call: Call, request: object) -> None:
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            call.start_failed(message)
        else:
            call.start_unary(message)


class UnaryUnaryMultiCallable(_MultiCallable, grpc.aio.UnaryUnaryMultiCallable):
    """Starts unary RPCs."""

    kind = "unary_unary"

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
        arguments = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        try:
            if self._interceptors:
                return self._intercept(arguments, request)
            return self._start(arguments, request)
        except OutsideLoopError:
            return self._start_outside_loop(arguments, request)

    def _start(self, arguments: CallArguments, requests: Any) -> UnaryUnaryCall:
        core = self._channel.core()
        call = UnaryUnaryCall(self._channel.loop, self._deserializer)
        self._start_with_request(self._new_call(core, call, arguments), requests)
        call.is_starting = False
        return call


class UnaryStreamMultiCallable(_MultiCallable, grpc.aio.UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""

    kind = "unary_stream"

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
        arguments = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        try:
            if self._interceptors:
                return self._intercept(arguments, request)
            return self._start(arguments, request)
        except OutsideLoopError:
            return self._start_outside_loop(arguments, request)

    def _start(self, arguments: CallArguments, requests: Any) -> UnaryStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = UnaryStreamCall(outcome)
        self._start_with_request(self._new_call(core, outcome, arguments), requests)
        outcome.is_starting = False
        return call


class StreamUnaryMultiCallable(_MultiCallable, grpc.aio.StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""

    kind = "stream_unary"

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamUnaryCall:
        arguments = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        try:
            if self._interceptors:
                return self._intercept(arguments, request_iterator)
            return self._start(arguments, request_iterator)
        except OutsideLoopError:
            return self._start_outside_loop(arguments, request_iterator)

    def _start(self, arguments: CallArguments, requests: RequestIterator | None) -> StreamUnaryCall:
        core = self._channel.core()
        call = StreamUnaryCall(self._channel.loop, self._deserializer, self._serializer)
        self._new_call(core, call, arguments).start()
        call.is_starting = False
        call.start_writing(requests)
        return call


class StreamStreamMultiCallable(_MultiCallable, grpc.aio.StreamStreamMultiCallable):
    """Starts RPCs with streamed requests and responses."""

    kind = "stream_stream"

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamStreamCall:
        arguments = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        try:
            if self._interceptors:
                return self._intercept(arguments, request_iterator)
            return self._start(arguments, request_iterator)
        except OutsideLoopError:
            return self._start_outside_loop(arguments, request_iterator)

    def _start(
        self, arguments: CallArguments, requests: RequestIterator | None
    ) -> StreamStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = StreamStreamCall(outcome, self._serializer)
        self._new_call(core, outcome, arguments).start()
        outcome.is_starting = False
        call.start_writing(requests)
        return call
