"""Options of a run: chosen by its seed, or read from the command line.

Each seed leaves out some features and workloads, so that the others are tested more. Options can be
written as text, `clients=1,has_dns=yes`, to run a seed with other options than its own.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
)
from proxyless.sim.links import LATENCY_S
from proxyless.sim.random_choices import choose, derived_random
from tools.simulation.random_choices import random_bool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.runtime import Random

# Ten minutes: five with faults, then time to recover and to check that no RPC fails.
FAULTS_S: Final = 300.0
CALM_S: Final = 300.0
# Some runs last until deactivated children are destroyed, which takes 15 minutes.
LONG_CALM_S: Final = 1_500.0

# Within a data center, between zones, between continents.
_LATENCIES_S: Final = (LATENCY_S, 0.005, 0.08)
_LB_POLICIES: Final = ("ROUND_ROBIN", "ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH")
_LISTED: Final = "+"


@frozen(kw_only=True)
class Options:
    """Options of one run."""

    clients: int = 2
    backends: int = 6
    clusters: int = 2
    lb_policy: str = "ROUND_ROBIN"
    rpcs_per_s: float = 2.0
    latency_s: float = LATENCY_S
    retries: int = 0
    has_fallback: bool = False
    is_paced: bool = True
    has_aggregate: bool = False
    has_sessions: bool = False
    has_load_reports: bool = False
    # Number of backends without faults.
    steady: int = 1
    faults_s: float = FAULTS_S
    calm_s: float = CALM_S
    workloads: tuple[str, ...] = ()
    # A LOGICAL_DNS cluster: alone, or the last leaf of the aggregate.
    has_dns: bool = False
    # Share of RPCs that some of the clusters drop.
    drop_share: float = 0.0
    # Limit of circuit breakers; 0 for gRPC's default.
    max_requests: int = 0
    has_outlier_detection: bool = False
    # Number of localities in each priority, with different weights.
    localities: int = 1
    # The fault filter delays or aborts some RPCs.
    has_injected_faults: bool = False
    # One backend is down for the whole fault phase.
    has_long_outage: bool = False
    # Maximum backoff between two attempts to connect; 0 for gRPC's default.
    reconnect_max_s: float = 0.0
    # Size of some of the replies; 0 for none.
    reply_bytes: int = 0
    # Clients use the incremental variant of xDS.
    is_delta: bool = False
    # Endpoints are members of collections (LEDS), which need the incremental variant.
    has_collections: bool = False

    @property
    def resource_types(self) -> tuple[str, ...]:
        """Types that control planes serve."""
        types = (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)
        return (*types, LB_ENDPOINT) if self.has_collections else types

    @classmethod
    def of_seed(cls, seed: int, known: Sequence[str]) -> Options:
        """Options of a seed; `known` are the names of all workloads."""
        chosen = cls.chosen_by(derived_random(seed, "options"), known)
        featured = chosen.with_features(derived_random(seed, "features"))
        return replace(featured, is_delta=random_bool(derived_random(seed, "variant"), 0.5))

    @classmethod
    def chosen_by(cls, random: Random, known: Sequence[str]) -> Options:
        """The mesh and its workloads."""
        clusters = 1 + random.randrange(3)
        return cls(
            clients=1 + random.randrange(3),
            backends=2 * clusters + random.randrange(4),
            clusters=clusters,
            lb_policy=choose(random, _LB_POLICIES),
            rpcs_per_s=0.5 + 2.0 * random.random(),
            latency_s=choose(random, _LATENCIES_S),
            retries=2 * random.randrange(2),
            has_fallback=random_bool(random, 0.5),
            is_paced=random_bool(random, 0.7),
            has_aggregate=random_bool(random, 0.3),
            has_sessions=random_bool(random, 0.5),
            has_load_reports=random_bool(random, 0.5),
            steady=random.randrange(clusters + 1),
            calm_s=LONG_CALM_S if random_bool(random, 0.1) else CALM_S,
            workloads=tuple(name for name in known if random_bool(random, 0.7)),
        )

    def with_features(self, random: Random) -> Options:
        """Features of clusters and backends, with random numbers of their own."""
        has_long_outage = random_bool(random, 0.2)
        return replace(
            self,
            has_dns=random_bool(random, 0.35),
            drop_share=choose(random, (0.02, 0.1, 0.5)) if random_bool(random, 0.3) else 0.0,
            max_requests=2 + random.randrange(5) if random_bool(random, 0.3) else 0,
            has_outlier_detection=random_bool(random, 0.3),
            localities=1 + random.randrange(3),
            has_injected_faults=random_bool(random, 0.2),
            has_long_outage=has_long_outage,
            reconnect_max_s=2.0 if has_long_outage else 0.0,
            reply_bytes=4_000 if random_bool(random, 0.4) else 0,
        )

    # As text

    def describe(self) -> str:
        """All options that are not the default, for `parse`."""
        default = Options()
        found = ((each.name, getattr(self, each.name)) for each in fields(self))
        changed = [(name, value) for name, value in found if value != getattr(default, name)]
        return ",".join(f"{name}={_show(value)}" for name, value in changed)

    @classmethod
    def parse(cls, text: str) -> Options:
        """Parse the text of `describe`; raises ValueError."""
        default = cls()
        settings: dict[str, object] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in {each.name for each in fields(cls)}:
                raise ValueError(f"there is no option {name!r}")
            settings[name] = _read(name, value, getattr(default, name))
        return replace(default, **settings)  # type: ignore[arg-type]


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return _LISTED.join(value)
    return str(value)


def _read(name: str, text: str, default: object) -> object:
    """A value of the type of the default."""
    if isinstance(default, bool):
        if text not in {"yes", "no"}:
            raise ValueError(f"option {name!r} is {text!r}, wanted yes or no")
        return text == "yes"
    if isinstance(default, tuple):
        return tuple(filter(None, text.split(_LISTED)))
    try:
        return type(default)(text)  # type: ignore[call-arg]
    except ValueError:
        kind = type(default).__name__
        raise ValueError(f"option {name!r} is {text!r}, wanted {kind}") from None
