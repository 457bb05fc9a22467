"""Leak check of policies: a closed policy leaves no subchannel, timer, child or object.

Each policy is created, used and closed many times with the same fakes: a few updates, connections
that change, RPCs, time; then it is closed in any state. A policy of `lb.policies` is checked as
soon as it is registered; it only needs a config here.
"""

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from proxyless.assembly import default_policies
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    EMPTY_METADATA,
    OK,
    Endpoint,
    Metadata,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.lb import Complete, PickInfo, Policy, PolicyFactory, Update
from proxyless.lb.attributes import REQUEST_HASH
from proxyless.lb.hierarchy import with_path
from proxyless.runtime import Random, seeded_random
from proxyless.testing import FakeHelper, address
from proxyless.testing.fakes import CHANGES
from proxyless.xds.config.attributes import HEALTH_STATUS
from proxyless.xds.filters.attributes import OVERRIDE_HOST, OverrideHost
from proxyless.xds.lb.override_host.policy import NAME as OVERRIDE_HOST_NAME
from proxyless.xds.resources import HealthStatus

RUNS: Final = 1_000
ENDPOINTS_MAX: Final = 5
STEPS_MAX: Final = 7
# Longer than any timer: the clock keeps cancelled timers until they are due.
LONGER_THAN_TIMERS_S: Final = 10_000.0

ROUND_ROBIN: Final[list[object]] = [{"round_robin": {}}]
PICK_FIRST: Final[list[object]] = [{"pick_first": {}}]
OUTLIERS: Final = {
    "failurePercentageEjection": {"threshold": 30, "minimumHosts": 1, "requestVolume": 1},
    "maxEjectionPercent": 50,
}
SESSION_HEALTHS: Final = (HealthStatus.UNKNOWN, HealthStatus.HEALTHY, HealthStatus.DRAINING)
# Names of children, for policies that assign endpoints to children.
PATHS: Final = ("p0", "p1")


def targets(*names: str, child: list[object]) -> dict[str, object]:
    return {"targets": {name: {"weight": 1, "childPolicy": child} for name in names}}


def priorities(*names: str, child: list[object]) -> dict[str, object]:
    return {"children": {name: {"config": child} for name in names}, "priorities": list(names)}


def sessions(child: dict[str, object]) -> dict[str, object]:
    return {"clusterName": "c", "childPolicy": [child]}


# Each policy is configured with one of these at a time.
CONFIGS: Final[Mapping[str, Sequence[Mapping[str, object]]]] = {
    "pick_first": [{}, {"shuffleAddressList": True}],
    "round_robin": [{}],
    "priority_experimental": [
        priorities("p0", "p1", child=ROUND_ROBIN),
        priorities("p1", "p0", child=PICK_FIRST),
        priorities("p1", child=ROUND_ROBIN),
        priorities(child=ROUND_ROBIN),
    ],
    "weighted_target_experimental": [
        targets("p0", "p1", child=ROUND_ROBIN),
        targets("p1", child=PICK_FIRST),
        targets(child=ROUND_ROBIN),
    ],
    "outlier_detection_experimental": [
        {"childPolicy": ROUND_ROBIN, **OUTLIERS},
        {"childPolicy": PICK_FIRST, **OUTLIERS},
        {"childPolicy": ROUND_ROBIN},
    ],
    "ring_hash_experimental": [{"minRingSize": 16, "maxRingSize": 64}, {"minRingSize": 32}],
    "least_request_experimental": [{}, {"choiceCount": 3}],
    "proxyless.peak_ewma": [{}, {"decayTime": "2s"}],
    "weighted_round_robin": [{}, {"enableOobLoadReport": True, "blackoutPeriod": "0s"}],
    "random_subsetting_experimental": [
        {"subsetSize": 2, "childPolicy": ROUND_ROBIN},
        {"subsetSize": 3, "childPolicy": PICK_FIRST},
    ],
    "random": [{}],
    OVERRIDE_HOST_NAME: [
        sessions({"priority_experimental": priorities("p0", "p1", child=ROUND_ROBIN)}),
        sessions({"priority_experimental": priorities("p1", "p0", child=PICK_FIRST)}),
        sessions({"round_robin": {}}),
    ],
}
# Policies that mostly have a timer.
WITH_TIMERS: Final = {
    "priority_experimental",
    "outlier_detection_experimental",
    OVERRIDE_HOST_NAME,
}
REGISTERED: Final = [name for name in CONFIGS if default_policies().find(name) is not None]


class End:
    """How an attempt ended."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, status: Status) -> None:
        self.status = status


class PolicyRuns:
    """Creates, uses and closes one kind of policy, again and again with the same fakes."""

    def __init__(self, name: str) -> None:
        self.helper = FakeHelper(default_policies())
        self._random: Random = seeded_random(1)
        # From the guarded registry, so that it counts as a child until it is closed.
        factory = self.helper.context.registry.find(name)
        assert factory is not None, f"{name!r} is registered"
        self._factory: PolicyFactory = factory
        self._configs = [self._parse(json) for json in CONFIGS[name]]
        # Number of runs in which there was something to release, by its kind.
        self.seen: Counter[str] = Counter()

    def _make_rpc(self) -> PickInfo:
        return PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(REQUEST_HASH, 1))

    def _parse(self, json: Mapping[str, object]) -> object:
        errors = ValidationErrors()
        config = self._factory.parse_config(json, errors, self.helper.context.registry)
        errors.raise_if_any(self._factory.name)
        return config

    def run(self) -> None:
        """Create, use and close a policy."""
        policy = self._factory.create(self.helper)
        self._update(policy)
        for _ in range(self._random.randrange(STEPS_MAX)):
            self._step(policy)
        self._count()
        policy.close()
        self._check_closed()
        for connection in map(self.helper.connection, "abcdefgh"):
            connection.is_shared = self._random.randrange(4) == 0
        # Drop the references to old pickers.
        self.helper.reports.clear()
        self.helper.events.clear()

    def _count(self) -> None:
        helper = self.helper
        seen = {
            "subchannels": helper.subchannels,
            "children": helper.children.open,
            "timers": helper.clock.timers_pending,
            "READY": helper.state is State.READY,
        }
        self.seen.update(what for what, is_there in seen.items() if is_there)

    def _check_closed(self) -> None:
        helper = self.helper
        assert not helper.subchannels, "subchannels are left"
        assert not helper.children.open, "children are left"
        assert helper.clock.timers_pending == 0, "timers are left"

    def _step(self, policy: Policy) -> None:
        match self._random.randrange(10):
            case 0:
                self._update(policy)
            case 1:
                policy.exit_idle()
            case 2:
                policy.reset_backoff()
            case 3:
                self.helper.clock.advance((0.0, 0.25, 10.0, 1000.0)[self._random.randrange(4)])
            case 4 | 5:
                self._run_rpcs()
            case 6 | 7 | 8:
                self._connect()
            case _:
                self._change_connections()

    def _update(self, policy: Policy) -> None:
        config = self._configs[self._random.randrange(len(self._configs))]
        if self._random.randrange(8) == 0:
            policy.update(Update(Status(StatusCode.UNAVAILABLE, "no such host"), config))
            return
        names = list("abcdefgh")
        self._random.shuffle(names)
        size = self._random.randrange(ENDPOINTS_MAX + 1)
        policy.update(Update(tuple(map(self._make_endpoint, names[:size])), config))

    def _make_endpoint(self, name: str) -> Endpoint:
        both = (address(name), address(f"{name}6"))
        endpoint = Endpoint(both[: 1 + self._random.randrange(2)])
        return with_path(endpoint, (PATHS[self._random.randrange(len(PATHS))],))

    def _connect(self) -> None:
        """Bring all connections to READY."""
        self._run_rpcs()
        self.helper.settle()
        for state in (State.IDLE, State.CONNECTING, State.READY):
            for connection in self.helper.connections:
                if connection.can_become(state):
                    connection.become(state)
            self.helper.settle()

    def _change_connections(self) -> None:
        for connection in self.helper.connections:
            after = CHANGES[connection.state]
            state = after[self._random.randrange(len(after))]
            if connection.can_become(state):
                connection.become(state)

    def _run_rpcs(self) -> None:
        for _ in range(3):
            result = self.helper.pick(self._make_rpc())
            if isinstance(result, Complete) and result.tracker is not None:
                result.tracker.on_start()
                is_bad = self._random.randrange(2) == 0
                result.tracker.on_end(End(Status(StatusCode.INTERNAL) if is_bad else OK))


class SessionRuns(PolicyRuns):
    """Runs of a policy with sessions: RPCs have cookies, and endpoints a health status."""

    def _make_rpc(self) -> PickInfo:
        names = list("abcdefgh")
        self._random.shuffle(names)
        addresses = [str(address(name)) for name in names[: self._random.randrange(3)]]
        override = OverrideHost(tuple(addresses))
        return PickInfo("/a/b", attributes=EMPTY_ATTRIBUTES.with_(OVERRIDE_HOST, override))

    def _make_endpoint(self, name: str) -> Endpoint:
        endpoint = super()._make_endpoint(name)
        health = SESSION_HEALTHS[self._random.randrange(len(SESSION_HEALTHS))]
        attributes = endpoint.attributes.with_(HEALTH_STATUS, health)
        return Endpoint(endpoint.addresses, attributes)


def is_ours(kind: type) -> bool:
    # `__module__` of some types is not a string.
    return str(kind.__module__).startswith("proxyless.")


def count_objects() -> Counter[str]:
    """Number of objects of this package that are alive, by type."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if is_ours(kind))


@pytest.mark.parametrize("name", REGISTERED)
def test_close_releases_everything(name: str) -> None:
    runs = SessionRuns(name) if name == OVERRIDE_HOST_NAME else PolicyRuns(name)
    runs.run()  # Fills caches.
    before = count_objects()
    for _ in range(RUNS - 1):
        runs.run()
    # The runs had something that could leak.
    assert min(runs.seen[what] for what in ("subchannels", "children", "READY")) > RUNS // 10
    assert name not in WITH_TIMERS or runs.seen["timers"] > RUNS // 10
    runs.helper.clock.advance(LONGER_THAN_TIMERS_S)
    grown = {kind: more for kind, more in (count_objects() - before).items() if more >= RUNS // 10}
    assert not grown, "objects accumulate"


def test_every_policy_of_the_package_is_checked() -> None:
    registry = default_policies()
    found = ((name, registry.find(name)) for name in registry.names)
    own = {
        name
        for name, factory in found
        if type(factory).__module__.startswith("proxyless.lb.policies.")
    }
    assert own - CONFIGS.keys() == set(), "no config here"
