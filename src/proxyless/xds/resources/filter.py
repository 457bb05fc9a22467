"""Which filters stand between the application and the router, and how is each configured?

What a filter's config is, only the filter knows (`xds.filters`): here it is an opaque value that
compares by content.
"""

from collections.abc import Mapping
from typing import Final

from proxyless.base.frozen import frozen


@frozen
class HttpFilter:
    """One entry of a listener's chain."""

    # Unique in its chain; overrides refer to it.
    name: str
    # The full name of the config's message, by which the filter is found.
    type_name: str
    # What the filter's parser made.
    config: object = None
    # Off unless an override turns it on (A39).
    is_disabled: bool = False


@frozen
class FilterOverride:
    """What a virtual host, a route or a weighted cluster says about one filter of the chain."""

    # What the filter's parser made of it; None if nothing was said but on or off.
    config: object = None
    is_disabled: bool = False


# By the filter's name in the chain. A name that the chain does not have is no error (A39-02).
FilterOverrides = Mapping[str, FilterOverride]

NO_OVERRIDES: Final[FilterOverrides] = {}
