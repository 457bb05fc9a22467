"""Each client uses a few of many endpoints, and together they use all of them alike.

Specs: A68 (random_subsetting_experimental).

`choose_subset` decides: rendezvous hashing with a seed of the policy's own, so that each endpoint
that comes or goes changes one of the few at most. What is done with them is the child's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from operator import itemgetter
from typing import Final

from xxhash import xxh64_intdigest

from proxyless.base import Address, Endpoint, Status, ValidationErrors
from proxyless.lb.api import Endpoints, Helper, Policy, Update
from proxyless.lb.config import PolicyConfig, parse_policy_list, type_name
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.registry import PolicyRegistry

SUBSET_SIZE_MAX: Final = 2**32 - 1

SEED_BITS: Final = 64


# ---------------------------------------------------------------------------------------------
# Config


@dataclass(frozen=True, slots=True)
class RandomSubsettingConfig:
    """How many endpoints are used, and by which policy."""

    subset_size: int
    # None only if the config is not valid.
    child: PolicyConfig | None


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> RandomSubsettingConfig:
    subset_size = _parse_subset_size(json.get("subsetSize"), errors)
    child: PolicyConfig | None = None
    with errors.field("childPolicy"):
        if json.get("childPolicy") is None:
            errors.add("is missing, wanted a list of policies")
        else:
            child = parse_policy_list(json["childPolicy"], errors, registry)
    return RandomSubsettingConfig(subset_size, child)


def _parse_subset_size(size: object, errors: ValidationErrors) -> int:
    with errors.field("subsetSize"):
        if size is None:
            errors.add(f"is missing, wanted an integer from 1 to {SUBSET_SIZE_MAX}")
        # To Python a boolean is an integer, to JSON it is not.
        elif not isinstance(size, int) or isinstance(size, bool):
            errors.add(f"is {type_name(size)}, wanted an integer from 1 to {SUBSET_SIZE_MAX}")
        elif not 1 <= size <= SUBSET_SIZE_MAX:
            errors.add(f"is {size}, wanted an integer from 1 to {SUBSET_SIZE_MAX}")
        else:
            return size
    return 1


# ---------------------------------------------------------------------------------------------
# Decision


def choose_subset(
    endpoints: Sequence[Endpoint], size: int, ranks: Mapping[Address, int]
) -> tuple[Endpoint, ...]:
    """The endpoints whose first addresses have the lowest ranks, the lowest first.

    "If the number of endpoints is less than `subset_size` always use all" - A68
    """
    if len(endpoints) <= size:
        return tuple(endpoints)
    ranked = ((ranks[endpoint.addresses[0]], endpoint) for endpoint in endpoints)
    return tuple(endpoint for _, endpoint in nsmallest(size, ranked, key=itemgetter(0)))


def rank_addresses(
    endpoints: Sequence[Endpoint], seed: int, known: Mapping[Address, int]
) -> dict[Address, int]:
    """The hash of each first address with this seed; those that are known are taken over."""
    ranks: dict[Address, int] = {}
    for endpoint in endpoints:
        address = endpoint.addresses[0]
        rank = known.get(address)
        if rank is None:
            rank = xxh64_intdigest(str(address).encode(errors="surrogatepass"), seed)
        ranks[address] = rank
    return ranks


# ---------------------------------------------------------------------------------------------
# Policy


class RandomSubsetting:
    """Shows its child a part of the endpoints. Driven by its parent."""

    __slots__ = ("_child", "_helper", "_ranks", "_seed")

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        self._child = GracefulSwitch(helper)
        # Drawn once, when it is first needed.
        self._seed: int | None = None
        # From the last update that had endpoints, to make the next one cheap.
        self._ranks: Mapping[Address, int] = {}

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, RandomSubsettingConfig), "the config is one of ours"
        endpoints = self._choose(update.endpoints, config.subset_size)
        return self._child.update(replace(update, endpoints=endpoints, config=config.child))

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        self._child.reset_backoff()

    def close(self) -> None:
        self._child.close()

    def _choose(self, endpoints: Endpoints, size: int) -> Endpoints:
        if isinstance(endpoints, Status):
            return endpoints
        if self._seed is None:
            self._seed = self._helper.context.random.getrandbits(SEED_BITS)
        self._ranks = rank_addresses(endpoints, self._seed, self._ranks)
        subset = choose_subset(endpoints, size, self._ranks)
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
        return RandomSubsetting(helper)
