"""Requests of the incremental variant of ADS in one line, and a new stream."""

from proxyless.base import Status, StatusCode
from proxyless.protos import Proto
from tests.worlds.xds_clients import XdsClientWorld

GONE = Status(StatusCode.UNAVAILABLE, "gone")


def show(request: Proto) -> str:
    """A request in one line: `+x -y x=1 ACK n`."""
    parts = [f"+{name}" for name in request.resource_names_subscribe]
    parts += [f"-{name}" for name in request.resource_names_unsubscribe]
    parts += [f"{name}={v}" for name, v in sorted(request.initial_resource_versions.items())]
    if request.response_nonce:
        verb = "NACK" if request.HasField("error_detail") else "ACK"
        parts.append(f"{verb} {request.response_nonce}")
    return " ".join(parts)


def take(world: XdsClientWorld, uri: str = "a") -> list[str]:
    return [show(request) for request in world.server(uri).take_requests()]


def reconnect(world: XdsClientWorld, uri: str = "a") -> None:
    world.server(uri).ads.end(GONE)
    world.clock.advance(2)
