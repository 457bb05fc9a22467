"""Subjects of the pick benchmark: policies and trees, with fake subchannels that are READY.

Each registered policy that has a config here, by itself, and the tree of an xDS channel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proxyless.assembly import default_policies
from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Address,
    Attributes,
    Endpoint,
    IpAddress,
    State,
    ValidationErrors,
)
from proxyless.lb import (
    Cancel,
    Complete,
    Context,
    Picker,
    PickInfo,
    PolicyRegistry,
    StateListener,
    Subchannel,
    Update,
    parse_policy_list,
)
from proxyless.lb.api import LoadListener
from proxyless.lb.attributes import REQUEST_HASH
from proxyless.lb.hierarchy import with_path
from proxyless.lb.orca import LoadReport
from proxyless.runtime import VirtualClock, seeded_random
from proxyless.xds.filters.attributes import CLUSTER

LOCALITIES: Final = 10
# Long enough for a load report, and for the end of the blackout period.
SETTLE_S: Final = 5.0
INFOS: Final = 1024
# Passes over all RPCs until each of them has a connected endpoint.
PASSES_MAX: Final = 10

# The cost of a pick with 10,000 endpoints, at most, as a multiple of that with 10.
FLAT: Final = 1.5
# A search in a sorted ring: log 10,000 / log 10.
LOGARITHMIC: Final = 4.0
# The loads of two random endpoints and a subchannel are read: cache misses, if there are many.
RANDOM_READS: Final = 2.0


def _nowhere(index: int) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy or a tree of policies, and its config."""

    name: str
    # A LoadBalancingConfig list.
    config: Sequence[Mapping[str, object]]
    # The path of the endpoint with this index in the tree.
    path: Callable[[int], tuple[str, ...]] = _nowhere
    ratio_max: float = FLAT


# ---------------------------------------------------------------------------------------------
# Subjects

ROUND_ROBIN: Final[Sequence[Mapping[str, object]]] = ({"round_robin": {}},)
_COUNTING: Final[Mapping[str, object]] = {
    "successRateEjection": {},
    "failurePercentageEjection": {},
}


def _targets(path: Callable[[int], str]) -> dict[str, object]:
    names = [path(index) for index in range(LOCALITIES)]
    return {"targets": {name: {"weight": 1, "childPolicy": list(ROUND_ROBIN)} for name in names}}


def _locality(index: int) -> str:
    return f"locality-{index % LOCALITIES}"


_PRIORITY: Final = {"children": {"p0": {"config": list(ROUND_ROBIN)}}, "priorities": ["p0"]}


def _tree(outliers: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The tree of A75, built from the leaves up."""
    localities = [{"weighted_target_experimental": _targets(_locality)}]
    priorities = {"children": {"p0": {"config": localities}}, "priorities": ["p0"]}
    policy: Mapping[str, object] = {"priority_experimental": priorities}
    for name, config in (
        ("xds_override_host_experimental", {"clusterName": "cluster-0"}),
        ("xds_cluster_impl_experimental", {"cluster": "cluster-0"}),
        ("outlier_detection_experimental", outliers),
    ):
        policy = {name: {**config, "childPolicy": [policy]}}
    children = {"cluster-0": {"childPolicy": [policy]}}
    return ({"xds_cluster_manager_experimental": {"children": children}},)


_SUBJECTS: Final = (
    Subject("pick_first", ({"pick_first": {}},)),
    Subject("round_robin", ROUND_ROBIN),
    Subject("random", ({"random": {}},)),
    Subject("least_request", ({"least_request_experimental": {}},)),
    Subject("peak_ewma", ({"proxyless.peak_ewma": {}},), ratio_max=RANDOM_READS),
    Subject(
        "weighted_round_robin",
        ({"weighted_round_robin": {"enableOobLoadReport": True, "blackoutPeriod": "0s"}},),
    ),
    Subject(
        "ring_hash",
        ({"ring_hash_experimental": {"minRingSize": 1024}},),
        ratio_max=LOGARITHMIC,
    ),
    Subject(
        "random_subsetting",
        ({"random_subsetting_experimental": {"subsetSize": 20, "childPolicy": [*ROUND_ROBIN]}},),
    ),
    Subject("priority", ({"priority_experimental": _PRIORITY},), lambda index: ("p0",)),
    Subject(
        "weighted_target",
        ({"weighted_target_experimental": _targets(_locality)},),
        lambda index: (_locality(index),),
    ),
    Subject(
        "outlier_detection",
        ({"outlier_detection_experimental": {"childPolicy": [*ROUND_ROBIN], **_COUNTING}},),
    ),
    Subject(
        "outlier_detection off",
        ({"outlier_detection_experimental": {"childPolicy": [*ROUND_ROBIN]}},),
    ),
    Subject("tree", _tree(_COUNTING), lambda index: ("p0", _locality(index))),
    Subject("tree, no outliers", _tree({}), lambda index: ("p0", _locality(index))),
)


def find_subjects() -> dict[str, Subject]:
    """The subjects whose policies are all registered, by name."""
    registry = default_policies()
    return {each.name: each for each in _SUBJECTS if _is_known(each, registry)}


def _is_known(subject: Subject, registry: PolicyRegistry) -> bool:
    errors = ValidationErrors()
    parse_policy_list(list(subject.config), errors, registry)
    return errors.ok


def make_infos() -> list[PickInfo]:
    """RPCs to pick for in each pass, each with its own hash."""
    random = seeded_random(1)
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "cluster-0")
    hashes = (random.getrandbits(64) for _ in range(INFOS))
    return [PickInfo("/a.B/C", attributes=attributes.with_(REQUEST_HASH, each)) for each in hashes]


def make_picker(subject: Subject, size: int, infos: Sequence[PickInfo]) -> Picker:
    """The picker of a policy with this many endpoints, which has a connection for each RPC."""
    helper = ReadyHelper(default_policies())
    errors = ValidationErrors()
    config = parse_policy_list(list(subject.config), errors, helper.context.registry)
    errors.raise_if_any(subject.name)
    assert config is not None, "a config without errors names a policy"
    policy = config.factory.create(helper)
    endpoints = tuple(
        with_path(Endpoint((_address(index),)), subject.path(index)) for index in range(size)
    )
    policy.update(Update(endpoints, config.config))
    helper.clock.advance(SETTLE_S)
    assert helper.state is State.READY or subject.name == "ring_hash", "all others connect at once"
    for _ in range(PASSES_MAX):
        assert helper.picker is not None, "a policy reports after its first update"
        results = [helper.picker.pick(info) for info in infos]
        if all(isinstance(result, Complete) for result in results):
            return helper.picker
        # A pick has requested a connection, which is READY in the next turn.
        helper.clock.advance(0)
    raise AssertionError(f"{subject.name} with {size} endpoints completes no pick")


def _address(index: int) -> Address:
    return IpAddress(f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}", 80)


# ---------------------------------------------------------------------------------------------
# Fakes


def _no_cancel() -> None:
    return


class ReadySubchannel:
    """A subchannel that is always READY."""

    __slots__ = ("_helper", "address")

    def __init__(self, helper: "ReadyHelper", address: Address) -> None:
        self.address: Final = address
        self._helper: Final = helper

    def watch(self, listener: StateListener) -> Cancel:
        listener(State.READY, OK)
        return _no_cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        return self.watch(listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        self._helper.report_load_soon(listener)
        return _no_cancel

    def request_connection(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def release(self) -> None:
        return


class ReadyHelper:
    """Helper of the measured policy."""

    def __init__(self, registry: PolicyRegistry) -> None:
        self.clock = VirtualClock()
        self._random = seeded_random(1)
        self.context = Context(self.clock, self._random, registry)
        self.state: State | None = None
        self.picker: Picker | None = None

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return ReadySubchannel(self, address)

    def update_state(self, state: State, picker: Picker) -> None:
        self.state, self.picker = state, picker

    def request_reresolution(self) -> None:
        return

    def report_load_soon(self, listener: LoadListener) -> None:
        """Report a random load, so that endpoints have different weights."""
        report = LoadReport(application_utilization=self._random.uniform(0.3, 0.9), qps=100.0)
        self.clock.call_later(0, lambda: listener(report))
