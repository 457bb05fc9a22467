"""xds_override_host under test, above a priority policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Locality, Status
from proxyless.lb import PickInfo, Update
from proxyless.lb.hierarchy import with_path
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing import ANY_RPC
from proxyless.xds.config import ClusterConfig, XdsConfig
from proxyless.xds.config.attributes import HEALTH_STATUS, HOSTNAME, LOCALITY, XDS_CONFIG
from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.lb.override_host import OverrideHostFactory
from proxyless.xds.resources import HealthStatus
from tests.worlds.child_policies import StubChildFactory
from tests.worlds.policies import Name, PolicyWorld, address
from tests.worlds.xds_resources import cluster, host, listener, route, route_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.lb import PickResult

UNDRAINED: Final = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})
IDLE_TIMEOUT_S: Final = 60.0


def backend(*names: Name, health: HealthStatus = HealthStatus.UNKNOWN) -> Endpoint:
    attributes = (
        EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, health)
        .with_(LOCALITY, Locality(zone=names[0]))
        .with_(HOSTNAME, f"{names[0]}.example")
    )
    return Endpoint(tuple(map(address, names)), attributes)


def texts(*names: Name) -> tuple[str, ...]:
    return tuple(str(address(name)) for name in names)


class OverrideWorld(PolicyWorld):
    """Policy above a priority policy, as in the tree of a cluster."""

    def __init__(self) -> None:
        self.stubs = StubChildFactory()
        others = (PriorityFactory(), RoundRobinFactory(), PickFirstFactory(), self.stubs)
        super().__init__(OverrideHostFactory(), others=others)
        for letter in "abcdefgh":
            self._names.update((address(name), letter) for name in (letter, f"{letter}6"))

    @property
    def handed_over(self) -> list[Name]:
        """Addresses that got a subchannel while they still had another."""
        return [self.name(at) for at in self.helper.created_again]

    def update_priorities(
        self,
        *priorities: Sequence[Endpoint | Name],
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        statuses: frozenset[HealthStatus] = UNDRAINED,
        names: tuple[str, ...] = ("p0", "p1", "p2"),
        child: list[dict[str, object]] | None = None,
    ) -> Status:
        """Update the policy: endpoints by priority, and settings of the cluster."""
        endpoints = [
            with_path(each if isinstance(each, Endpoint) else backend(each), (name,))
            for name, priority in zip(names, priorities, strict=False)
            for each in priority
        ]
        used = names[: len(priorities)]
        children: dict[str, object] = {name: {"config": [{"round_robin": {}}]} for name in used}
        config = {"children": children, "priorities": list(used)}
        return self.update_cluster(
            tuple(endpoints),
            child or [{"priority_experimental": config}],
            idle_timeout_s=idle_timeout_s,
            override_host_status=statuses,
        )

    def update_cluster(
        self,
        endpoints: tuple[Endpoint, ...] | Status,
        child: list[dict[str, object]],
        *,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        override_host_status: frozenset[HealthStatus] = UNDRAINED,
    ) -> Status:
        settings = {"idle_timeout_s": idle_timeout_s, "override_host_status": override_host_status}
        entry = ClusterConfig("c", cluster("c", None, **settings))
        xds_config = XdsConfig(listener(), route_config("c"), host(route("c")), {"c": (entry,)})
        attributes = EMPTY_ATTRIBUTES.with_(XDS_CONFIG, xds_config)
        config = self.parse({"clusterName": "c", "childPolicy": child})
        return self.policy.update(Update(endpoints, config, attributes))

    def connect(self, *names: Name) -> None:
        for name in names:
            self[name].connecting()
            self[name].ready()

    def session(self, *names: Name) -> tuple[Name | Status | None, OverrideHost]:
        """Pick for an RPC whose cookie has these addresses."""
        override = OverrideHost(texts(*names))
        self.rpc = PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override))
        try:
            return self.pick(), override
        finally:
            self.rpc = ANY_RPC

    def raw_session(self, *names: Name) -> PickResult:
        override = OverrideHost(texts(*names))
        info = PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override))
        return self.picker.pick(info)

    def expect_session_at(self, name: Name) -> None:
        """Check that an RPC with a cookie for this host is sent to it."""
        assert self.session(name)[0] == name

    def own(self, name: Name) -> None:
        """Make the policy hold a READY subchannel to a host that the child does not use."""
        assert self.session(name)[0] is None
        self.settle()
        assert self.session(name)[0] is None
        self.settle()
        self.connect(name)
        self.expect_session_at(name)
