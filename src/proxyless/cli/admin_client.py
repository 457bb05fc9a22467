"""Client of the admin services of a process: CSDS (A40), and the live service of `proxyless.admin`.

A process with grpcio's channels has CSDS only, so a command that uses the live service falls back
to CSDS where it can (`is_unimplemented`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base.texts import one_line
from proxyless.observe import CSDS_SERVICE
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 32 * 1024 * 1024
LIVE_SERVICE: Final = "proxyless.live.v1.Live"

CSDS_FETCH: Final = f"/{CSDS_SERVICE}/FetchClientStatus"
CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),)

_STATUS: Final = "envoy.service.status.v3"
_LIVE: Final = "proxyless.live.v1"


def live_message(name: str, **fields: Any) -> Proto:  # noqa: ANN401 - fields of any type
    """A message of the live service."""
    return message_class(f"{_LIVE}.{name}")(**fields)


@contextmanager
def admin_channel(address: str) -> Iterator[Any]:
    """grpcio's channel to the admin port of a process."""
    with grpc.insecure_channel(address, CHANNEL_OPTIONS) as channel:
        yield channel


def status_request(*, has_contents: bool) -> Proto:
    name = f"{_STATUS}.ClientStatusRequest"
    return message_class(name)(exclude_resource_contents=not has_contents)


def status_response() -> type[Proto]:
    return message_class(f"{_STATUS}.ClientStatusResponse")


def fetch_status(address: str, timeout_s: float, *, has_contents: bool) -> Proto:
    """Request the status from a process's CSDS; raises grpc.RpcError."""
    request = status_request(has_contents=has_contents)
    with admin_channel(address) as channel:
        call = channel.unary_unary(
            CSDS_FETCH,
            request_serializer=type(request).SerializeToString,
            response_deserializer=status_response().FromString,
        )
        return call(request, timeout=timeout_s)


def fetch_explanations(
    address: str,
    method: str,
    headers: Sequence[tuple[str, str]],
    target: str | None,
    timeout_s: float,
) -> Proto:
    """Explanations of a method by the channels of a process; raises grpc.RpcError."""
    request = live_message("ExplainRequest", method=method, target=target or "")
    for key, value in headers:
        request.metadata.add(key=key, value=value.encode())
    with admin_channel(address) as channel:
        call = channel.unary_unary(
            f"/{LIVE_SERVICE}/Explain",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_class(f"{_LIVE}.ExplainResponse").FromString,
        )
        return call(request, timeout=timeout_s)


def is_unimplemented(error: grpc.RpcError) -> bool:
    return error.code() is grpc.StatusCode.UNIMPLEMENTED


def describe_failure(address: str, error: grpc.RpcError) -> str:
    if is_unimplemented(error):
        return f"{address!r} has no CSDS, wanted the port of proxyless.admin.add_servicers"
    return f"{address!r}: {error.code().name}: {one_line(error.details() or '')}"
