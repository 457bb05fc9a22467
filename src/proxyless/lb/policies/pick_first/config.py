"""Config of pick_first, and the other settings of an update.

Spec: A62 (shuffling, and the environment variable that guards the config), A61 (attempt delay).
"""

import os
from collections.abc import Mapping
from typing import Final

from proxyless.base import Key, ValidationErrors
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, JsonObject
from proxyless.lb.api import Update
from proxyless.lb.attributes import HEALTH_WATCH
from proxyless.lb.policies.pick_first.happy_eyeballs import NO_OVERLAP_S, attempt_delay_s

# Attribute of an update. Seconds; NO_OVERLAP_S tries one address at a time.
CONNECTION_ATTEMPT_DELAY: Final = Key[float]("connection_attempt_delay_s")

CONFIG_GUARD: Final = "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG"


@frozen
class PickFirstConfig:
    """Whether each received list of endpoints is brought into a random order."""

    shuffle_address_list: bool = False


def is_config_enabled() -> bool:
    """Whether pick_first may be configured (A62), by the environment as it is now."""
    return read_flag(os.environ, CONFIG_GUARD, default=True)


def parse_config(json: Mapping[str, object], errors: ValidationErrors) -> PickFirstConfig:
    if not is_config_enabled():
        return PickFirstConfig()
    fields = JsonObject(json, errors)
    return PickFirstConfig(fields.read_or("shuffleAddressList", BOOLEAN, default=False))


@frozen
class Settings:
    """What an update contains besides endpoints and config."""

    delay_s: float
    has_health_watch: bool
    resolution_note: str

    def annotate(self, text: str) -> str:
        return f"{text} ({self.resolution_note})" if self.resolution_note else text


NO_SETTINGS: Final = Settings(NO_OVERLAP_S, has_health_watch=False, resolution_note="")


def read_settings(update: Update) -> Settings:
    return Settings(
        delay_s=attempt_delay_s(update.attributes.get(CONNECTION_ATTEMPT_DELAY)),
        has_health_watch=update.attributes.get(HEALTH_WATCH) or False,
        resolution_note=update.resolution_note,
    )
