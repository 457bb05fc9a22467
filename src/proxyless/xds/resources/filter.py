"""HTTP filters of a listener, and their overrides (A39).

A config is an opaque value that compares by content; only its filter uses it (`xds.filters`).
"""

from collections.abc import Mapping
from typing import Final

from proxyless.base.frozen import frozen


@frozen
class HttpFilter:
    """One entry of a listener's chain."""

    # Unique in its chain; overrides refer to it.
    name: str
    # The full name of the config's message type.
    type_name: str
    config: object = None
    # Whether the filter is disabled unless an override enables it.
    is_disabled: bool = False


@frozen
class FilterOverride:
    """Override of one filter by a virtual host, a route or a weighted cluster."""

    # None: the override only enables or disables the filter.
    config: object = None
    is_disabled: bool = False


# By the filter's name in the chain. A name that is not in the chain is not an error (A39-02).
FilterOverrides = Mapping[str, FilterOverride]

NO_OVERRIDES: Final[FilterOverrides] = {}
