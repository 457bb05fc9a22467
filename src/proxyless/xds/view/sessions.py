"""Session of an RPC, and the host that it would stay on.

Specs: A55 (the cookie), A60 (its cluster), A75 (the choice of a host).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.xds.filters.session_calls import matches_path, read_place
from proxyless.xds.filters.stateful_session import StatefulSessionConfig
from proxyless.xds.lb.override_host import policy
from proxyless.xds.lb.override_host.hosts import choose_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from proxyless.base import Metadata, State
    from proxyless.xds.config import ClusterConfig
    from proxyless.xds.lb.override_host.hosts import Verdict
    from proxyless.xds.resources import HealthStatus

# The LB policy that keeps sessions on their hosts.
OVERRIDE_HOST_POLICY: Final = policy.NAME


@frozen
class SessionHost:
    """The choice of a host for an RPC of a session."""

    verdict: Verdict
    # The chosen one; empty if none is.
    address: str
    # That of the first host of the session that the cluster has; None if it has none.
    health: HealthStatus | None


@frozen
class Session:
    """The cookie that keeps a session, and its value in the RPC."""

    cookie: str
    # Empty if the RPC has no such cookie.
    addresses: tuple[str, ...] = ()
    cluster: str = ""

    def choose_host(self, entry: ClusterConfig | None, states: Mapping[str, State]) -> SessionHost:
        """By the endpoints of the cluster, and by the states of subchannels, as far as known."""
        listed = () if entry is None else _hosts(entry, states)
        hosts = {each.address: each for each in listed}
        usable = () if entry is None else entry.cluster.override_host_status
        verdict, chosen = choose_host(self.addresses, hosts, usable)
        first = next((hosts[each] for each in self.addresses if each in hosts), None)
        return SessionHost(
            verdict,
            "" if chosen is None else chosen.address,
            None if first is None else first.health,
        )


@frozen
class _Host:
    """One address, as `choose_host` sees it."""

    address: str
    health: HealthStatus
    # None without a subchannel.
    state: State | None


def find_session(configs: Iterable[object], path: str, metadata: Metadata) -> Session | None:
    """The session that the first such filter among these configs keeps; None if none does."""
    for config in configs:
        if isinstance(config, StatefulSessionConfig) and (cookie := config.cookie) is not None:
            if not matches_path(cookie.path, path):
                return None
            return Session(cookie.name, *read_place(metadata, cookie.name))
    return None


def _hosts(entry: ClusterConfig, states: Mapping[str, State]) -> Iterator[_Host]:
    priorities = () if entry.endpoints is None else entry.endpoints.priorities
    for priority in priorities:
        for locality in priority:
            for endpoint in locality.endpoints:
                for address in map(str, endpoint.addresses):
                    yield _Host(address, endpoint.health, states.get(address))
