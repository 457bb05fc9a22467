"""Config of pick_first, and the other settings of an update.

Specs: A62 (shuffling, and the environment variable that guards the config), A61 (attempt delay).
"""

import os
from functools import lru_cache
from typing import Final

from proxyless.base import Key
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.lb.api import Update
from proxyless.lb.attributes import HEALTH_WATCH
from proxyless.lb.policies.pick_first.happy_eyeballs import NO_OVERLAP_S, attempt_delay_s

# Update attribute, in seconds. NO_OVERLAP_S attempts one address at a time.
CONNECTION_ATTEMPT_DELAY: Final = Key[float]("connection_attempt_delay_s")

# Settings that are kept.
SETTINGS_MAX: Final = 64

CONFIG_GUARD: Final = "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG"


@frozen
class PickFirstConfig:
    """Parsed config."""

    shuffle_address_list: bool = False


def is_config_enabled() -> bool:
    """Whether the config of pick_first is used (A62). Reads the environment at each call."""
    return read_flag(os.environ, CONFIG_GUARD, default=True)


@frozen
class PickFirstSettings:
    """Settings of an update besides endpoints and config."""

    delay_s: float
    has_health_watch: bool
    resolution_note: str

    def annotate(self, text: str) -> str:
        return f"{text} ({self.resolution_note})" if self.resolution_note else text


NO_SETTINGS: Final = PickFirstSettings(NO_OVERLAP_S, has_health_watch=False, resolution_note="")


def read_settings(update: Update) -> PickFirstSettings:
    has_health_watch = update.attributes.get(HEALTH_WATCH) or False
    return _settings(
        attempt_delay_s(update.attributes.get(CONNECTION_ATTEMPT_DELAY)),
        has_health_watch,
        update.resolution_note,
    )


@lru_cache(SETTINGS_MAX)
def _settings(delay_s: float, has_health_watch: bool, resolution_note: str) -> PickFirstSettings:
    """Policies of the endpoints of a cluster share one object."""
    return PickFirstSettings(delay_s, has_health_watch, resolution_note)
