"""How are the RPCs of one priority spread over its localities?

Specs: A52 (xds_wrr_locality_experimental): by weighted_target, with the weights that the control
plane gave the localities, each with the same child policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Locality, Status
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject
from proxyless.lb.config import parse_child_policy
from proxyless.lb.hierarchy import path_of
from proxyless.lb.policies.weighted_target import (
    TargetConfig,
    WeightedTargetConfig,
    WeightedTargetFactory,
    WeightedTargetPolicy,
)
from proxyless.lb.view import LbNode, describe_policy, wrap
from proxyless.xds.config.attributes import LOCALITY, LOCALITY_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Endpoint, ValidationErrors
    from proxyless.lb import Helper, Policy, PolicyConfig, PolicyRegistry, Update

NAME: Final = "xds_wrr_locality_experimental"


@frozen
class WrrLocalityConfig:
    """What each locality is balanced by; None stands for a config that was refused."""

    child_policy: PolicyConfig | None


def targets_of(endpoints: tuple[Endpoint, ...], policy: PolicyConfig) -> dict[str, TargetConfig]:
    """A target for each locality, in the order in which they come."""
    targets: dict[str, TargetConfig] = {}
    for endpoint in endpoints:
        path = path_of(endpoint)
        if path and path[0] not in targets:
            weight = endpoint.attributes.get(LOCALITY_WEIGHT) or 1
            locality = endpoint.attributes.get(LOCALITY) or Locality()
            targets[path[0]] = TargetConfig(weight, policy, locality.label)
    return targets


class WrrLocalityPolicy:
    """A weighted_target whose targets are the localities. Driven by its parent and its child."""

    def __init__(self, helper: Helper) -> None:
        self._child = WeightedTargetPolicy(helper)
        # From the last update: what the targets were made of, and they.
        self._config = WeightedTargetConfig()

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, WrrLocalityConfig), "the config is one of ours"
        assert config.child_policy is not None, "a refused config is never used"
        if not isinstance(update.endpoints, Status):
            targets = targets_of(update.endpoints, config.child_policy)
            self._config = WeightedTargetConfig(targets)
        return self._child.update(update.with_config(self._config))

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        self._child.reset_backoff()

    def close(self) -> None:
        self._child.close()

    def describe(self) -> LbNode:
        return wrap(describe_policy(self._child, WeightedTargetFactory.name))


class WrrLocalityFactory:
    """What the registry knows of xds_wrr_locality_experimental."""

    name: Final = NAME

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> WrrLocalityConfig:
        return WrrLocalityConfig(parse_child_policy(JsonObject(json, errors), registry))

    def create(self, helper: Helper) -> Policy:
        return WrrLocalityPolicy(helper)
