"""The xds_wrr_locality policy: spreads the RPCs of one priority over its localities by weight.

Specs: A52. It configures a weighted_target policy with one target for each locality. The weights
are those of the EDS resource; all targets have the same child policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Locality, Status
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.lb.config import PolicyConfig, parse_child_policy
from proxyless.lb.delegating import DelegatingPolicy
from proxyless.lb.hierarchy import path_of
from proxyless.lb.policies.weighted_target import (
    TargetConfig,
    WeightedTargetConfig,
    WeightedTargetFactory,
)
from proxyless.xds.config.attributes import LOCALITY, LOCALITY_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Attributes, Endpoint, ValidationErrors
    from proxyless.lb import Helper, PolicyRegistry, Update

NAME: Final = "xds_wrr_locality_experimental"

_WEIGHTED_TARGET: Final = WeightedTargetFactory()


@frozen
class WrrLocalityConfig:
    """The policy of each locality; None stands for a config that was rejected."""

    child_policy: PolicyConfig | None


def targets_of(endpoints: tuple[Endpoint, ...], policy: PolicyConfig) -> dict[str, TargetConfig]:
    """One target for each locality, in order of their first endpoints."""
    targets: dict[str, TargetConfig] = {}
    attributes: Attributes | None = None
    for endpoint in endpoints:
        if endpoint.attributes is attributes:  # The same locality as the last endpoint.
            continue
        attributes = endpoint.attributes
        path = path_of(endpoint)
        if path and path[0] not in targets:
            weight = endpoint.attributes.get(LOCALITY_WEIGHT) or 1
            locality = endpoint.attributes.get(LOCALITY) or Locality()
            targets[path[0]] = TargetConfig(weight, policy, locality.label)
    return targets


class WrrLocalityPolicy(DelegatingPolicy):
    """Delegates to a weighted_target policy whose targets are the localities."""

    __slots__ = ("_config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        # From the last update with endpoints.
        self._config = WeightedTargetConfig()

    def delegate(self, update: Update) -> Update:
        config = update.config
        assert isinstance(config, WrrLocalityConfig), "the config has this policy's type"
        assert config.child_policy is not None, "a rejected config is never used"
        if not isinstance(update.endpoints, Status):
            targets = targets_of(update.endpoints, config.child_policy)
            self._config = WeightedTargetConfig(targets)
        return update.with_config(PolicyConfig(_WEIGHTED_TARGET, self._config))


class WrrLocalityFactory:
    """Factory of xds_wrr_locality_experimental."""

    name: Final = NAME
    create = WrrLocalityPolicy

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> WrrLocalityConfig:
        return WrrLocalityConfig(parse_child_policy(JsonObject(json, errors), registry))
