"""CallRoute: where an RPC went, for calls and errors of both APIs.

route = proxyless.call_route(call)
logging.info("order stored: %s", route)

A route is made on request, from what a call holds anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from proxyless.base import quote
from proxyless.base.frozen import frozen
from proxyless.channel.call import Call, last_pick_of
from proxyless.front.aio.interceptors import InterceptedCall
from proxyless.front.channel_api import failed_rpc_of
from proxyless.xds.config.attributes import LOCALITY
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS

if TYPE_CHECKING:
    from proxyless.base import Locality
    from proxyless.channel.call import LastPick

# Interceptors of an application, each of which may wrap the call.
_WRAPPERS_MAX: Final = 100
# Attributes of the objects that grpcio's `intercept_channel` wraps calls and errors in.
_WRAPPED: Final = ("_call", "_exception")
_CALLS: Final = (grpc.RpcError, grpc.Call, grpc.Future, grpc.aio.RpcContext)


@frozen
class CallRoute:
    """Where an RPC went: its last attempt, and the number of attempts until now.

    `str()` is for a line of a log: the fields in this order, `waits_for` only if there is one.
    """

    # None if the RPC has not been sent: it waits, was dropped, or failed before.
    address: str | None = None
    # None if the target is not an xDS one. Below an aggregate cluster, this is the leaf.
    cluster: str | None = None
    locality: Locality | None = None
    # Streams that were opened, including transparent retries and hedges.
    attempts: int = 0
    # Number of the channel's config that routed the RPC, counted from 1; 0 if it has none yet.
    config_generation: int = 0
    # What the RPC waits for now, before an attempt: "resolving", "connecting" or "retry_backoff",
    # "credentials" or "http_filters".
    waits_for: str | None = None

    def __str__(self) -> str:
        locality = None if self.locality is None else "/".join(self._locality_parts())
        texts = (("address", self.address), ("cluster", self.cluster), ("locality", locality))
        shown = [f"{name}={'-' if text is None else _plain(text)}" for name, text in texts]
        shown += [f"attempts={self.attempts}", f"config_generation={self.config_generation}"]
        if self.waits_for is not None:
            shown.append(f"waits_for={self.waits_for}")
        return " ".join(shown)

    def _locality_parts(self) -> tuple[str, str, str]:
        assert self.locality is not None, "called if there is one"
        return self.locality.region, self.locality.zone, self.locality.sub_zone


def _plain(text: str) -> str:
    """The text as it is, or in quotes if a reader of the log could not find its end."""
    quoted = quote(text)
    is_plain = bool(text) and quoted[1:-1] == text and " " not in text and "=" not in text
    return text if is_plain else quoted


def call_route(call: object) -> CallRoute:
    """Where the RPC of a call went, or of an error that a call raised.

    The call may be running or finished, of an asyncio or a blocking channel: what a stub, `future`
    or `with_call` returns, with interceptors or without. Raises TypeError for any other object, and
    ValueError for a call of another library, or a copy of a call or an error.
    """
    found = _find_pick(call)
    if found is None:
        return CallRoute()
    settings = found.attributes.get(UPSTREAM_TLS)
    return CallRoute(
        None if found.address is None else str(found.address),
        None if settings is None else settings.cluster,
        found.attributes.get(LOCALITY),
        found.attempts_opened,
        found.config_generation,
        found.waits_for or None,
    )


def _find_pick(call: Any) -> LastPick | None:
    """The last pick; None if interceptors have not started the RPC yet."""
    if not isinstance(call, _CALLS):
        raise TypeError(f"call is {type(call).__name__}, wanted a call or an error of gRPC")
    inner = call
    for _ in range(_WRAPPERS_MAX):
        if isinstance(inner, BaseException) and (failed := failed_rpc_of(inner)) is not None:
            return failed.last_pick
        rpc = getattr(inner, "rpc", None)
        if isinstance(rpc, Call):
            return last_pick_of(rpc)
        if isinstance(inner, InterceptedCall):
            inner = inner.started
            if inner is None:
                return None
        else:
            wrapped = (getattr(inner, name, None) for name in _WRAPPED)
            inner = next((each for each in wrapped if each is not None), None)
        if inner is None:
            break
    raise ValueError(f"{type(call).__name__} is no call of a channel of proxyless, or a copy of it")
