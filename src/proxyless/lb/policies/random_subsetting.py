"""The `random_subsetting_experimental` policy: gives its child a random subset of the endpoints.

Specs: A68.

`choose_subset` is rendezvous hashing with a random seed per policy: the subsets of all clients
together use all endpoints evenly, and an added or removed endpoint changes a subset by one at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from heapq import nsmallest
from operator import itemgetter
from typing import Final

from xxhash import xxh64_intdigest

from proxyless.base import Endpoint, Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import UINT32_MAX, JsonObject, integer
from proxyless.lb.api import Endpoints, Helper, PolicyRegistry, Update
from proxyless.lb.config import PolicyConfig, parse_child_policy
from proxyless.lb.delegating import DelegatingPolicy

_SUBSET_SIZE: Final = integer(1, UINT32_MAX)

SEED_BITS: Final = 64


@frozen
class RandomSubsettingConfig:
    """Parsed config."""

    subset_size: int
    # None only if the config is invalid.
    child: PolicyConfig | None


@frozen(eq=False)
class Ranking:
    """Ranks of the endpoints, cached for the next update."""

    seed: int
    # By id of an endpoint: its rank, and the endpoint (a reference, so that the id is not reused).
    ranked: Mapping[int, tuple[int, Endpoint]] = field(default_factory=dict)

    def updated(self, endpoints: Sequence[Endpoint]) -> "Ranking":
        before = self.ranked
        ranked = [before.get(id(each)) or (rank(each, self.seed), each) for each in endpoints]
        return Ranking(self.seed, dict(zip(map(id, endpoints), ranked, strict=True)))


def rank(endpoint: Endpoint, seed: int) -> int:
    """ "If an endpoint defines multiple addresses - use the first one" - A68."""
    return xxh64_intdigest(str(endpoint.addresses[0]).encode(errors="surrogatepass"), seed)


def choose_subset(
    endpoints: Sequence[Endpoint], size: int, ranking: Ranking
) -> tuple[Endpoint, ...]:
    """Return the endpoints of lowest rank, in order of rank.

    "If the number of endpoints is less than `subset_size` always use all" - A68
    """
    if len(endpoints) <= size:
        return tuple(endpoints)
    ranked = map(ranking.ranked.__getitem__, map(id, endpoints))
    return tuple(endpoint for _, endpoint in nsmallest(size, ranked, key=itemgetter(0)))


class RandomSubsettingPolicy(DelegatingPolicy):
    """Owns the ranking of the endpoints."""

    __slots__ = ("_ranking",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update that had endpoints; its seed is from the first one.
        self._ranking: Ranking | None = None

    def delegate(self, update: Update) -> Update:
        config = update.config
        assert isinstance(config, RandomSubsettingConfig), "the factory parsed the config"
        endpoints = self._choose(update.endpoints, config.subset_size)
        return replace(update, endpoints=endpoints, config=config.child)

    def _note(self) -> str:
        count = 0 if self._ranking is None else len(self._ranking.ranked)
        return f"a subset of {count} endpoints"

    def _choose(self, endpoints: Endpoints, size: int) -> Endpoints:
        if isinstance(endpoints, Status):
            return endpoints
        if self._ranking is None:
            self._ranking = Ranking(self._helper.context.random.getrandbits(SEED_BITS))
        self._ranking = self._ranking.updated(endpoints)
        subset = choose_subset(endpoints, size, self._ranking)
        trace = self._helper.context.trace
        if trace.active:
            trace.emit("random_subsetting.subset", chosen=subset, of=len(endpoints))
        return subset


class RandomSubsettingFactory:
    """Factory of random_subsetting_experimental."""

    name: Final = "random_subsetting_experimental"
    create = RandomSubsettingPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RandomSubsettingConfig:
        fields = JsonObject(json, errors)
        subset_size = fields.need("subsetSize", _SUBSET_SIZE) or 1
        return RandomSubsettingConfig(subset_size, parse_child_policy(fields, registry))
