"""Cases: timeouts, retries, faults and sessions of RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.controlplane import (
    eds_cluster,
    endpoints,
    fault,
    fault_filter,
    http_connection_manager,
    keep_sessions,
    lb_endpoint,
    listener,
    retry,
    route,
    session_filter,
)
from proxyless.controlplane.builders import set_duration
from tools.peers.decisions.case import case
from tools.peers.decisions.mesh import FAIL, SERVICE, SLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.protos import Proto
    from tools.peers.decisions.mesh import Mesh

# Caps are a second; RPCs that are not capped end after three.
_CAP_S: Final = 1.0
_SLOW_S: Final = "3"
_LONG_S: Final = "17"
# Of a delay of 2 s.
_DELAYED_S: Final = 1.9


@case("no timeout anywhere, an RPC of 17 s", "DEADLINE_EXCEEDED", "D20")
async def default_timeout(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="a"))
    await mesh.settle()
    return await mesh.results(SLOW, body=_LONG_S)


@case("route's `timeout` of 1 s", "DEADLINE_EXCEEDED", "D20")
async def route_timeout(mesh: Mesh) -> str:
    await mesh.serve(_with_timeout(route(cluster="a"), _CAP_S))
    await mesh.settle()
    return await mesh.results(SLOW, body=_SLOW_S)


@case("route's `max_stream_duration` of 1 s", "DEADLINE_EXCEEDED", "D20")
async def stream_duration(mesh: Mesh) -> str:
    first = route(cluster="a")
    set_duration(first.route.max_stream_duration.max_stream_duration, _CAP_S)
    await mesh.serve(first)
    await mesh.settle()
    return await mesh.results(SLOW, body=_SLOW_S)


@case("`grpc_timeout_header_max` of 1 s, `max_stream_duration` of 10 s", "DEADLINE_EXCEEDED", "D20")
async def header_max(mesh: Mesh) -> str:
    first = route(cluster="a")
    set_duration(first.route.max_stream_duration.max_stream_duration, 10.0)
    set_duration(first.route.max_stream_duration.grpc_timeout_header_max, _CAP_S)
    await mesh.serve(first)
    await mesh.settle()
    return await mesh.results(SLOW, body=_SLOW_S)


@case("the listener's `max_stream_duration` of 1 s", "DEADLINE_EXCEEDED", "D20")
async def listener_duration(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="a"), more=[_listener_with_duration(_CAP_S)])
    await mesh.settle()
    return await mesh.results(SLOW, body=_SLOW_S)


@case("0 s on the route, 1 s on the listener", "a", "D20")
async def route_duration_zero(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.route.max_stream_duration.max_stream_duration.SetInParent()
    await mesh.serve(first, more=[_listener_with_duration(_CAP_S)])
    await mesh.settle()
    return await mesh.results(SLOW, body=_SLOW_S)


@case("retries: 2 of them, a backend that fails twice", "a, 3 attempts", "A44")
async def retries(mesh: Mesh) -> str:
    return await _retry(mesh, ["unavailable"], "UNAVAILABLE", fails=2)


@case("retries: RESOURCE_EXHAUSTED", "a, 2 attempts", "A44")
async def retry_exhausted(mesh: Mesh) -> str:
    return await _retry(mesh, ["resource-exhausted"], "RESOURCE_EXHAUSTED", fails=1)


@case("retries: another code than the policy's", "INTERNAL, 1 attempt", "A44")
async def retry_other_code(mesh: Mesh) -> str:
    return await _retry(mesh, ["unavailable"], "INTERNAL", fails=1)


@case("retries: `5xx` and `connect-failure` only, UNAVAILABLE", "UNAVAILABLE, 1 attempt", "A44")
async def retry_unsupported(mesh: Mesh) -> str:
    return await _retry(mesh, ["5xx", "connect-failure"], "UNAVAILABLE", fails=1)


@case("retries: an unknown value beside `cancelled`", "a, 2 attempts", "A44")
async def retry_unknown(mesh: Mesh) -> str:
    return await _retry(mesh, ["nonsense", "cancelled"], "CANCELLED", fails=1)


@case("retries: `num_retries` of 9", "UNAVAILABLE, 5 attempts", "A44, A6")
async def retry_many(mesh: Mesh) -> str:
    return await _retry(mesh, ["unavailable"], "UNAVAILABLE", fails=9, times=9)


@case("retries: `num_retries` of 0", "NACK, UNAVAILABLE", "A44")
async def retry_zero(mesh: Mesh) -> str:
    await mesh.serve(retry(route(cluster="a"), times=0))
    return await mesh.verdict()


@case("fault: abort with ABORTED", "ABORTED", "A33")
async def fault_abort(mesh: Mesh) -> str:
    aborted = fault(route(cluster="a"), abort=StatusCode.ABORTED)
    await mesh.serve(aborted, filters=[fault_filter()])
    return await mesh.results()


@case("fault: abort with the status OK: no response", "UNIMPLEMENTED", "D37")
async def fault_abort_ok(mesh: Mesh) -> str:
    aborted = fault(route(cluster="a"), abort=StatusCode.OK)
    await mesh.serve(aborted, filters=[fault_filter()])
    return await mesh.results()


@case("fault: delay of 2 s", "a, later", "A33")
async def fault_delay(mesh: Mesh) -> str:
    delayed = fault(route(cluster="a"), delay_s=2.0)
    await mesh.serve(delayed, filters=[fault_filter()])
    await mesh.settle()
    (rpc,) = await mesh.call()
    return f"{rpc.reply or rpc.code}, {'later' if rpc.seconds >= _DELAYED_S else 'at once'}"


@case("fault: delay of 5 s, and a deadline of 1 s", "DEADLINE_EXCEEDED", "A33")
async def fault_delay_deadline(mesh: Mesh) -> str:
    delayed = fault(route(cluster="a"), delay_s=5.0)
    await mesh.serve(delayed, filters=[fault_filter()])
    await mesh.settle()
    return await mesh.results(timeout_s=1.0)


@case("session: 20 RPCs with the cookie", "1 backend", "A55")
async def session(mesh: Mesh) -> str:
    cookie, _ = await _start_session(mesh)
    if not cookie:
        return await mesh.verdict()
    rpcs = await mesh.call(count=20, metadata=[("cookie", cookie)])
    return f"{len({rpc.reply or rpc.code for rpc in rpcs})} backend"


@case("session: its backend is DRAINING", "the same backend", "A55")
async def session_draining(mesh: Mesh) -> str:
    cookie, backend = await _start_session(mesh)
    if not cookie:
        return await mesh.verdict()
    await mesh.put(endpoints("three", _endpoints(mesh, draining=backend)))
    result = await mesh.results(count=10, metadata=[("cookie", cookie)])
    return "the same backend" if result == backend else "another backend"


@case("an endpoint becomes DRAINING, RPCs without a session", "b, c", "A55")
async def draining(mesh: Mesh) -> str:
    cluster = eds_cluster("three")
    await mesh.serve(route(cluster="three"), more=[cluster, endpoints("three", _endpoints(mesh))])
    await mesh.settle()
    await mesh.put(endpoints("three", _endpoints(mesh, draining="a")))
    await mesh.call(count=10)
    return await mesh.results(count=30)


def _with_timeout(made: Proto, timeout_s: float) -> Proto:
    set_duration(made.route.timeout, timeout_s)
    return made


def _listener_with_duration(duration_s: float) -> Proto:
    manager = http_connection_manager(SERVICE)
    set_duration(manager.common_http_protocol_options.max_stream_duration, duration_s)
    return listener(SERVICE, manager)


async def _retry(mesh: Mesh, codes: Sequence[str], code: str, *, fails: int, times: int = 2) -> str:
    await mesh.serve(retry(route(cluster="a"), codes, times=times, backoff_s=0.01))
    result = await mesh.results(FAIL, body=f"{code} {mesh.key} {fails}")
    attempts = mesh.attempts()
    return f"{result}, {attempts} attempt{'s' if attempts != 1 else ''}"


async def _start_session(mesh: Mesh) -> tuple[str, str]:
    """The cookie and the backend of a new session of a cluster with all backends."""
    await mesh.serve(
        route(cluster="three"),
        filters=[session_filter("session")],
        more=[keep_sessions(eds_cluster("three")), endpoints("three", _endpoints(mesh))],
    )
    (rpc,) = await mesh.call()
    return (rpc.cookies[0].partition(";")[0] if rpc.cookies else ""), rpc.reply


def _endpoints(mesh: Mesh, draining: str = "") -> list[Proto]:
    return [
        lb_endpoint(address, health="DRAINING" if name == draining else "HEALTHY")
        for name, address in mesh.addresses.items()
    ]
