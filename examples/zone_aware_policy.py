"""Example load balancing policy: endpoints in the client's own zone are preferred.

    registries = proxyless.Registries().extended(policies=[ZoneAwareFactory()])
    channel = proxyless.aio.insecure_channel(target, options, registries=registries)

with this in the service config, which is one of the options or comes from the resolver:

    {"loadBalancingConfig": [{"zone_aware": {"zone": "eu-1", "zones": {"10.0.0.1:80": "eu-1"}}}]}

docs/howto/write-a-policy.md explains it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxyless.base import Endpoint, Key, Status, ValidationErrors
from proxyless.lb import (
    DelegatingPolicy,
    Helper,
    Policy,
    PolicyConfig,
    PolicyRegistry,
    Update,
    parse_policy_list,
    with_path,
)

# The zone of an endpoint, if its resolver sets it.
ZONE: Final = Key[str]("zone")

SPREAD: Final = {"config": [{"round_robin": dict[str, object]()}]}
NEAR_THEN_FAR: Final = {"children": {"near": SPREAD, "far": SPREAD}, "priorities": ["near", "far"]}


@dataclass(frozen=True, slots=True)
class ZoneAwareConfig:
    """The zone of this client, the zones of addresses, and the config of the child policy."""

    zone: str
    zones: Mapping[str, str]
    child: PolicyConfig | None

    def place(self, endpoint: Endpoint) -> Endpoint:
        zone = endpoint.attributes.get(ZONE) or self.zones.get(str(endpoint.addresses[0]))
        return with_path(endpoint, ("near" if zone == self.zone else "far",))


class ZoneAware(DelegatingPolicy):
    """Near endpoints are the first priority, the others the second."""

    def delegate(self, update: Update) -> Update:
        config, endpoints = update.config, update.endpoints
        assert isinstance(config, ZoneAwareConfig), "the config is one of ours"
        if not isinstance(endpoints, Status):
            endpoints = tuple(map(config.place, endpoints))
        return replace(update, endpoints=endpoints, config=config.child)


class ZoneAwareFactory:
    """Parses configs and creates policies."""

    name: Final = "zone_aware"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> ZoneAwareConfig:
        zone, zones = json.get("zone"), json.get("zones", {})
        if not isinstance(zone, str):
            with errors.field("zone"):
                errors.add(f"is {zone!r}, wanted the name of a zone")
        if not isinstance(zones, dict):
            with errors.field("zones"):
                errors.add(f"is {zones!r}, wanted zones by address")
            zones = {}
        child = parse_policy_list([{"priority_experimental": NEAR_THEN_FAR}], errors, registry)
        return ZoneAwareConfig(str(zone), zones, child)

    def create(self, helper: Helper) -> Policy:
        return ZoneAware(helper)
