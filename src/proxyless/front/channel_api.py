"""Methods that asyncio and blocking channels share: multi-callables for stubs, and explanations.

The function that explains is passed to a channel (`Explain`), because it is in a higher layer. An
error of an RPC holds a `FailedRpc` for `explain_error`, with a weak reference to the channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import ref

from proxyless.base import EMPTY_METADATA
from proxyless.channel.call import last_pick_of, origin_of
from proxyless.front.conversions import to_metadata

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.base.explanation import Explanation
    from proxyless.channel import Call, Channel, ChannelView
    from proxyless.front.conversions import Deserializer, MetadataLike, Serializer
    from proxyless.lb import LbNode

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
# The four kinds of multi-callables.
UU = TypeVar("UU")
US = TypeVar("US")
SU = TypeVar("SU")
SS = TypeVar("SS")

# Explains an RPC: called with the view of its channel, its path and its metadata.
Explain: TypeAlias = "Callable[[ChannelView, str, Metadata], Explanation]"

# Calls a function on the loop of a channel, and returns its result.
CallOnLoop: TypeAlias = Callable[[Callable[[], Any]], Any]

# Attribute of an error.
_ATTRIBUTE: Final = "failed_rpc"


class MultiCallables(NamedTuple, Generic[UU, US, SU, SS]):
    """The classes of multi-callables that a channel creates for stubs."""

    unary_unary: Callable[..., UU]
    unary_stream: Callable[..., US]
    stream_unary: Callable[..., SU]
    stream_stream: Callable[..., SS]


class ChannelApi(Generic[UU, US, SU, SS]):
    """Base class of channels of both APIs."""

    multi_callables: MultiCallables[UU, US, SU, SS]
    explainer: Explain | None
    # Writes a flight recording to a path; returns the path of the file.
    recording_writer: Callable[[str], str] | None = None

    def unary_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UU:
        path = self.register(method, _registered_method)
        create = self.multi_callables.unary_unary
        return create(self, path, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> US:
        path = self.register(method, _registered_method)
        create = self.multi_callables.unary_stream
        return create(self, path, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> SU:
        path = self.register(method, _registered_method)
        create = self.multi_callables.stream_unary
        return create(self, path, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> SS:
        path = self.register(method, _registered_method)
        create = self.multi_callables.stream_stream
        return create(self, path, request_serializer, response_deserializer)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        """The path of a method. Metrics name only methods that generated code registers."""
        raise NotImplementedError

    def lb_tree(self) -> LbNode | None:
        """The current load balancing policies and connections; None while the channel is idle.

        For an asyncio channel, call this on the channel's loop.
        """
        return self._with_core(_lb_tree)

    def explain(self, method: str, metadata: MetadataLike = ()) -> Explanation:
        """Explain where an RPC of this method would go now, or why it would fail or wait.

        Has no side effects: an idle channel stays idle, no pick is made, nothing is awaited. For an
        asyncio channel, call this on the channel's loop.
        """
        explain = self.explainer
        if explain is None:
            raise RuntimeError("channel was created without a function that explains it")
        if not isinstance(method, str):
            raise TypeError(f"method is of type {type(method).__name__}, wanted str")
        path = method if method.startswith("/") else f"/{method}"
        given = to_metadata(metadata)
        return self._with_core(
            lambda core: explain(core.view(), path, given + self._own_metadata(path, core))
        )

    def record(self, path: str) -> str:
        """Write the flight recording of this process to a file; returns the path of the file.

        If `path` is a directory, a new file is created in it. Raises RuntimeError unless this
        channel or another one has the option `proxyless.flight_recorder`, or the process has the
        admin services. Blocks while it writes, some tens of milliseconds.
        """
        if self.recording_writer is None:
            raise RuntimeError("channel was created without a function that writes recordings")
        return self.recording_writer(path)

    def _with_core(self, function: Callable[[Channel], T]) -> T:
        """Call a function with the core, on the channel's loop."""
        raise NotImplementedError

    def _own_metadata(self, path: str, core: Channel) -> Metadata:
        """Metadata that the channel adds to an RPC of this path: the cookies of a session."""
        return EMPTY_METADATA


def _lb_tree(core: Channel) -> LbNode | None:
    return core.view().lb_tree()


class FailedRpc:
    """Reference of an error to its RPC. Copies of the error have none."""

    __slots__ = ("_call_on_loop", "_channel", "last_pick", "metadata", "path")

    def __init__(self, call: Call, call_on_loop: CallOnLoop) -> None:
        channel, self.path, self.metadata = origin_of(call)
        self.last_pick = last_pick_of(call)
        self._channel = ref(channel)
        self._call_on_loop = call_on_loop

    def explain(self, explain: Explain) -> Explanation | None:
        """Explain where such an RPC would go now; None if its channel was garbage-collected."""
        channel = self._channel()
        if channel is None:
            return None
        explanation: Explanation = self._call_on_loop(
            lambda: explain(channel.view(), self.path, self.metadata)
        )
        return explanation

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def attach_rpc(error: E, call: Call, call_on_loop: CallOnLoop) -> E:
    """Add a `FailedRpc` to an error, and return it."""
    setattr(error, _ATTRIBUTE, FailedRpc(call, call_on_loop))
    return error


def failed_rpc_of(error: BaseException) -> FailedRpc | None:
    """The RPC of an error; None for an error of another library, or a copy."""
    found = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, FailedRpc) else None


def call_here(function: Callable[[], T]) -> T:
    """`CallOnLoop` of asyncio channels, whose errors are explained on the channel's loop."""
    return function()
