"""Each client uses a few of many endpoints, and together they use all of them alike.

Specs: A68 (random_subsetting_experimental).

`choose_subset` decides: rendezvous hashing with a seed of the policy's own, so that each endpoint
that comes or goes changes one of the few at most. What is done with them is the child's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from heapq import nsmallest
from operator import itemgetter
from typing import Final

from xxhash import xxh64_intdigest

from proxyless.base import Endpoint, Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject, integer
from proxyless.lb.api import Endpoints, Helper, Policy, PolicyRegistry, Update
from proxyless.lb.config import PolicyConfig, parse_child_policy
from proxyless.lb.delegating import DelegatingPolicy

SUBSET_SIZE_MAX: Final = 2**32 - 1
_SUBSET_SIZE: Final = integer(1, SUBSET_SIZE_MAX)

SEED_BITS: Final = 64


# ---------------------------------------------------------------------------------------------
# Config


@frozen
class RandomSubsettingConfig:
    """How many endpoints are used, and by which policy."""

    subset_size: int
    # None only if the config is not valid.
    child: PolicyConfig | None


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> RandomSubsettingConfig:
    fields = JsonObject(json, errors)
    subset_size = fields.need("subsetSize", _SUBSET_SIZE) or 1
    return RandomSubsettingConfig(subset_size, parse_child_policy(fields, registry))


# ---------------------------------------------------------------------------------------------
# Decision


@frozen(eq=False)
class Ranking:
    """The endpoints with their ranks. Kept until the next update, to make that cheap."""

    seed: int
    # By id: the rank of an endpoint, and the endpoint, which keeps its id taken.
    ranked: Mapping[int, tuple[int, Endpoint]] = field(default_factory=dict)

    def updated(self, endpoints: Sequence[Endpoint]) -> "Ranking":
        """The ranking of these endpoints."""
        known = self.ranked
        ranked = [known.get(id(each)) or (rank(each, self.seed), each) for each in endpoints]
        return Ranking(self.seed, dict(zip(map(id, endpoints), ranked, strict=True)))


def rank(endpoint: Endpoint, seed: int) -> int:
    """ "If an endpoint defines multiple addresses - use the first one" - A68."""
    return xxh64_intdigest(str(endpoint.addresses[0]).encode(errors="surrogatepass"), seed)


def choose_subset(
    endpoints: Sequence[Endpoint], size: int, ranking: Ranking
) -> tuple[Endpoint, ...]:
    """Those that rank lowest, the lowest first.

    "If the number of endpoints is less than `subset_size` always use all" - A68
    """
    if len(endpoints) <= size:
        return tuple(endpoints)
    ranked = map(ranking.ranked.__getitem__, map(id, endpoints))
    return tuple(endpoint for _, endpoint in nsmallest(size, ranked, key=itemgetter(0)))


# ---------------------------------------------------------------------------------------------
# Policy


class RandomSubsettingPolicy(DelegatingPolicy):
    """Shows its child a part of the endpoints. Driven by its parent."""

    __slots__ = ("_ranking",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update that had endpoints. The seed is drawn with the first.
        self._ranking: Ranking | None = None

    def delegate(self, update: Update) -> Update:
        config = update.config
        assert isinstance(config, RandomSubsettingConfig), "the config is one of ours"
        endpoints = self._choose(update.endpoints, config.subset_size)
        return replace(update, endpoints=endpoints, config=config.child)

    def _note(self) -> str:
        known = 0 if self._ranking is None else len(self._ranking.ranked)
        return f"a subset of {known} endpoints"

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
    """What the registry knows of random_subsetting_experimental."""

    name: Final = "random_subsetting_experimental"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> RandomSubsettingConfig:
        return parse_config(json, errors, registry)

    def create(self, helper: Helper) -> Policy:
        return RandomSubsettingPolicy(helper)
