"""Methods of channelz, `grpc.channelz.v1.Channelz`, for the channels of this package.

Specs: A14 (channelz), A38 (admin services). There are no servers here: those of grpcio are shown by
grpcio's own channelz, which a process cannot serve on the same port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.observe.live.channelz import (
    PACKAGE,
    channelz_class,
    encode_channel,
    encode_socket,
    encode_subchannel,
    encode_trace,
)
from proxyless.observe.live.queries import Query, RefusedRequestError, ServiceMethods
from proxyless.observe.live.views import (
    NO_COUNTS,
    Contents,
    CountsView,
    epoch_offset_s,
    list_open,
    view_channel,
    view_channels,
    view_counts,
    view_subchannel,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from proxyless.base import Address
    from proxyless.channel import Channel, LoopStack
    from proxyless.channel.subchannel import Subchannel
    from proxyless.observe.flight import FlightRecorder
    from proxyless.observe.live.views import LiveChannel, SubchannelView
    from proxyless.protos import Proto

CHANNELZ_SERVICE: Final = f"{PACKAGE}.Channelz"

RESULTS_MAX: Final = 100

_CONTENTS: Final = Contents(tree=False, addresses=False, subchannels=True)


class ChannelzService:
    """The methods. The recorder has the events of channels."""

    def __init__(self, recorder: FlightRecorder) -> None:
        self._recorder: Final = recorder

    def methods(self) -> ServiceMethods:
        def one(method: Any, request: str) -> tuple[type[Proto], Any]:  # noqa: ANN401
            return channelz_class(request), method

        return ServiceMethods(
            CHANNELZ_SERVICE,
            {
                "GetTopChannels": one(self.get_top_channels, "GetTopChannelsRequest"),
                "GetChannel": one(self.get_channel, "GetChannelRequest"),
                "GetSubchannel": one(self.get_subchannel, "GetSubchannelRequest"),
                "GetSocket": one(self.get_socket, "GetSocketRequest"),
                "GetServers": one(self.get_servers, "GetServersRequest"),
                "GetServer": one(self.get_server, "GetServerRequest"),
                "GetServerSockets": one(self.get_server_sockets, "GetServerSocketsRequest"),
            },
            {},
        )

    def get_top_channels(self, request: Proto) -> Query:
        limit = min(max(request.max_results, 0) or RESULTS_MAX, RESULTS_MAX)

        def work(stack: LoopStack) -> Generator[None, None, list[LiveChannel]]:
            found: list[LiveChannel] = []
            for channel in list_open(stack):
                # One more than wanted, to find out whether there are more.
                if channel.id >= request.start_channel_id and len(found) <= limit:
                    found.append((yield from view_channel(channel, _CONTENTS)))
                    yield
            return found

        def finish(results: list[list[LiveChannel]], _silent: int) -> list[bytes]:
            found = sorted((each for result in results for each in result), key=lambda one: one.id)
            response = channelz_class("GetTopChannelsResponse")(end=len(found) <= limit)
            for channel in found[:limit]:
                self._encode_channel(channel, response.channel.add())
            return [response.SerializeToString()]

        return Query(work, finish)

    def get_channel(self, request: Proto) -> Query:
        def work(stack: LoopStack) -> Generator[None, None, list[LiveChannel]]:
            return view_channels(stack, lambda each: each.id == request.channel_id, _CONTENTS)

        def finish(results: list[list[LiveChannel]], _silent: int) -> list[bytes]:
            channel = _only([each for result in results for each in result], "channel", request)
            response = channelz_class("GetChannelResponse")()
            self._encode_channel(channel, response.channel)
            return [response.SerializeToString()]

        return Query(work, finish)

    def _encode_channel(self, channel: LiveChannel, into: Proto) -> None:
        encode_channel(channel, into)
        changes = self._recorder.states_of(channel.target)
        encode_trace(self._recorder.created(channel.id), changes, into.data.trace)

    def get_subchannel(self, request: Proto) -> Query:
        def work(stack: LoopStack) -> Generator[None, None, list[_Found]]:
            return _find_subchannels(stack, lambda each: each.id == request.subchannel_id)

        def finish(results: list[list[_Found]], _silent: int) -> list[bytes]:
            found = [each for result in results for each in result]
            subchannel, rpcs = _only(found, "subchannel", request)
            response = channelz_class("GetSubchannelResponse")()
            encode_subchannel(subchannel, rpcs, response.subchannel)
            return [response.SerializeToString()]

        return Query(work, finish)

    def get_socket(self, request: Proto) -> Query:
        def has_socket(subchannel: Subchannel) -> bool:
            return any(each.id == request.socket_id for each in subchannel.connections)

        def work(stack: LoopStack) -> Generator[None, None, list[_Found]]:
            return _find_subchannels(stack, has_socket)

        def finish(results: list[list[_Found]], _silent: int) -> list[bytes]:
            sockets = (
                socket for result in results for each, _ in result for socket in each.sockets
            )
            found = [each for each in sockets if each.id == request.socket_id]
            response = channelz_class("GetSocketResponse")()
            encode_socket(_only(found, "socket", request), response.socket)
            return [response.SerializeToString()]

        return Query(work, finish)

    def get_servers(self, _request: Proto) -> Query:
        response = channelz_class("GetServersResponse")(end=True)
        return Query(_no_work, lambda _results, _silent: [response.SerializeToString()])

    def get_server(self, request: Proto) -> Query:
        raise _not_found("server", request.server_id)

    def get_server_sockets(self, request: Proto) -> Query:
        raise _not_found("server", request.server_id)


_Found = tuple["SubchannelView", CountsView]


def _find_subchannels(
    stack: LoopStack, choose: Callable[[Subchannel], bool]
) -> Generator[None, None, list[_Found]]:
    """The chosen subchannel of a loop, if any, with the RPCs of all channels to its address."""
    channels = list_open(stack)
    for channel in channels:
        for subchannel in stack.pool.subchannels_of(channel):
            if choose(subchannel):
                return [(view_subchannel(subchannel), _count_rpcs(channels, subchannel.address))]
        yield
    return []


def _count_rpcs(channels: Iterable[Channel], address: Address) -> CountsView:
    found = NO_COUNTS
    for channel in channels:
        counts = None if channel.counts is None else channel.counts.addresses.get(address)
        if counts is not None:
            found += view_counts(counts, epoch_offset_s(channel))
    return found


def _no_work(_stack: LoopStack) -> Generator[None, None, None]:
    yield from ()


def _only(found: list[Any], kind: str, request: Proto) -> Any:  # noqa: ANN401 - of any kind
    if not found:
        raise _not_found(kind, getattr(request, f"{kind}_id"))
    return found[0]


def _not_found(kind: str, number: int) -> RefusedRequestError:
    return RefusedRequestError(grpc.StatusCode.NOT_FOUND, f"no open {kind} with ID {number}")
