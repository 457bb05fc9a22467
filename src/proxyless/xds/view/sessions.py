"""Session of an RPC, and the choice of its host.

Specs: A55 (cookie), A60 (cluster of the session), A75 (choice of a host).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.xds.filters.session_filter import matches_path, read_session_endpoint
from proxyless.xds.filters.stateful_session import StatefulSessionConfig
from proxyless.xds.lb.override_host import policy
from proxyless.xds.lb.override_host.choice import Verdict, choose_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from proxyless.base import Metadata, State
    from proxyless.xds.config import ClusterConfig
    from proxyless.xds.resources import HealthStatus

# The LB policy that keeps sessions on their hosts.
OVERRIDE_HOST_POLICY: Final = policy.NAME


@frozen
class SessionHost:
    """Choice of a host for an RPC of a session."""

    verdict: Verdict
    # Empty if no host is chosen.
    address: str
    # Health of the session's first host in the cluster; None if there is none.
    health: HealthStatus | None


@frozen
class Session:
    """Session cookie, and its value in the RPC."""

    cookie: str
    # Empty if the RPC has no such cookie.
    addresses: tuple[str, ...] = ()
    cluster: str = ""

    def choose_host(self, entry: ClusterConfig | None, states: Mapping[str, State]) -> SessionHost:
        """Choose among the endpoints of the cluster. `states`: known states of subchannels."""
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
    """Argument of `choose_host`: one address."""

    address: str
    health: HealthStatus
    # None without a subchannel.
    state: State | None


def find_session(configs: Iterable[object], path: str, metadata: Metadata) -> Session | None:
    """Session by the first session filter among these configs; None if there is none."""
    for config in configs:
        if isinstance(config, StatefulSessionConfig) and (cookie := config.cookie) is not None:
            if not matches_path(cookie.path, path):
                return None
            return Session(cookie.name, *read_session_endpoint(metadata, cookie.name))
    return None


def _hosts(entry: ClusterConfig, states: Mapping[str, State]) -> Iterator[_Host]:
    priorities = () if entry.endpoints is None else entry.endpoints.priorities
    for priority in priorities:
        for locality in priority:
            for endpoint in locality.endpoints:
                for address in map(str, endpoint.addresses):
                    yield _Host(address, endpoint.health, states.get(address))
