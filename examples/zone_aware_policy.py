"""A load balancing policy of one's own: RPCs stay in the client's zone while they can.

    registries = proxyless.Registries().extended(policies=[ZoneAwareFactory()])
    channel = proxyless.aio.insecure_channel(target, options, registries=registries)

with this in the service config, which is one of the options or comes from the resolver:

    {"loadBalancingConfig": [{"zone_aware": {"zone": "eu-1", "zones": {"10.0.0.1:80": "eu-1"}}}]}

How it works is told in docs/howto/write-a-policy.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxyless.base import Endpoint, Key, State, Status, ValidationErrors
from proxyless.lb import (
    QUEUE_PICKER,
    Endpoints,
    GracefulSwitch,
    Helper,
    Picker,
    Policy,
    PolicyConfig,
    PolicyRegistry,
    Update,
    parse_policy_list,
)
from proxyless.lb.forwarding import ForwardingHelper

# In which zone an endpoint is, if its resolver knows that.
ZONE: Final = Key[str]("zone")

# The best state first.
ORDER: Final = (State.READY, State.CONNECTING, State.IDLE, State.TRANSIENT_FAILURE)


@dataclass(frozen=True, slots=True)
class ZoneAwareConfig:
    """Where this client is, where each address is, and what both halves do."""

    zone: str
    zones: Mapping[str, str]
    child: PolicyConfig | None

    def split(self, endpoints: Endpoints) -> tuple[Endpoints, Endpoints]:
        """Those in our zone, and the others. A resolver's error is for both."""
        if isinstance(endpoints, Status):
            return endpoints, endpoints
        near = tuple(each for each in endpoints if self._is_near(each))
        return near, tuple(each for each in endpoints if not self._is_near(each))

    def _is_near(self, endpoint: Endpoint) -> bool:
        zone = endpoint.attributes.get(ZONE) or self.zones.get(str(endpoint.addresses[0]))
        return zone == self.zone


class ZoneAwareFactory:
    """What the registry knows of zone_aware."""

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
        child = parse_policy_list([{"round_robin": {}}], errors, registry)
        return ZoneAwareConfig(str(zone), zones, child)

    def create(self, helper: Helper) -> Policy:
        return ZoneAware(helper)


class ZoneAware:
    """Two round_robins, near and far: the far one gets RPCs while nothing near is READY."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._halves = [Half(helper, self), Half(helper, self)]
        self._is_held = False

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, ZoneAwareConfig), "the config is one of ours"
        statuses: list[Status] = []
        # Both halves report while they are updated; there is one thing to say when both are done.
        self._is_held = True
        for half, endpoints in zip(self._halves, config.split(update.endpoints), strict=True):
            half.is_empty = not endpoints
            child_update = replace(update, endpoints=endpoints, config=config.child)
            statuses.append(half.policy.update(child_update))
        self._is_held = False
        self.reconsider()
        return min(statuses, key=lambda status: not status.is_ok)

    def reconsider(self) -> None:
        if not self._is_held:
            # The near one is first, and an empty one has nothing to say about a failure.
            best = min(self._halves, key=lambda half: (ORDER.index(half.state), half.is_empty))
            self._helper.update_state(best.state, best.picker)

    def exit_idle(self) -> None:
        for half in self._halves:
            half.policy.exit_idle()

    def reset_backoff(self) -> None:
        for half in self._halves:
            half.policy.reset_backoff()

    def close(self) -> None:
        for half in self._halves:
            half.policy.close()


class Half(ForwardingHelper):
    """The helper of one child: passes everything on, but keeps what is reported."""

    def __init__(self, helper: Helper, owner: ZoneAware) -> None:
        super().__init__(helper)
        self._owner = owner
        self.state, self.is_empty = State.CONNECTING, True
        self.picker: Picker = QUEUE_PICKER
        self.policy = GracefulSwitch(self)

    def update_state(self, state: State, picker: Picker) -> None:
        self.state, self.picker = state, picker
        self._owner.reconsider()
