"""Choice of the host for an RPC of a session. Pure.

Specs: A75 "Changes in xds_override_host LB Policy" (A75-52..63).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from proxyless.base import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from proxyless.xds.resources import HealthStatus


class HostView(Protocol):
    """The part of a host that `choose_host` reads."""

    @property
    def health(self) -> HealthStatus: ...

    @property
    def state(self) -> State | None:
        """The state of the subchannel; None without one."""
        ...


class Verdict(Enum):
    """The decision about an RPC of a session; the value is its explanation."""

    USE = "the session's host is READY"
    CONNECT = "the session's host is IDLE and is connected"
    WAIT = "the session's host is CONNECTING"
    CREATE = "the session's host has no subchannel and gets one"
    DELEGATE = "no host of the session is usable: the child picks"


H = TypeVar("H", bound=HostView)


def choose_host(
    cookie_addresses: Iterable[str], hosts: Mapping[str, H], usable: Collection[HealthStatus]
) -> tuple[Verdict, H | None]:
    """The first member of `Verdict` that a host of the cookie allows, and that host.

    Among hosts with the same verdict the first one of the cookie is chosen; WAIT has no host.
    """
    idle: H | None = None
    without_subchannel: H | None = None
    is_connecting = False
    for address in cookie_addresses:
        host = hosts.get(address)
        if host is None or host.health not in usable:
            continue
        match host.state:
            case State.READY:
                return Verdict.USE, host
            case State.IDLE:
                idle = idle or host
            case State.CONNECTING:
                is_connecting = True
            case None:
                without_subchannel = without_subchannel or host
            case _:
                continue  # TRANSIENT_FAILURE: RPCs do not wait for it (A75-62).
    if idle is not None:
        return Verdict.CONNECT, idle
    if is_connecting:
        return Verdict.WAIT, None
    if without_subchannel is not None:
        return Verdict.CREATE, without_subchannel
    return Verdict.DELEGATE, None
