"""What do the HTTP filters of a route do to an RPC?

Specs: A39 (the chain, and who overrides what), A33 (faults), A55 (sessions).

Filters of this package say it in words; of others, their config is shown. Faults are drawn for each
RPC: what is told is how likely they are for one with this metadata, by the functions that the
filter itself draws with. Filters that applications wrote are not run: they may count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.base import quote
from proxyless.base.explanation import Explanation
from proxyless.xds.filters.fault import FaultConfig
from proxyless.xds.filters.fault_calls import find_abort, find_delay
from proxyless.xds.filters.router import RouterConfig
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.routing.selector import is_filter_disabled, override_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.base import Metadata
    from proxyless.xds.filters.fault_calls import Chance
    from proxyless.xds.resources import HttpFilter
    from proxyless.xds.resources.filter import FilterOverrides

_LAYERS: Final = ("virtual host", "route", "weighted cluster")


def explain_filter(
    http_filter: HttpFilter, layers: Sequence[FilterOverrides], metadata: Metadata
) -> Explanation:
    """One filter of a chain, and what it does to an RPC with this metadata."""
    config, layer = config_in_force(http_filter, layers)
    source = "" if layer is None else f", overridden by the {_LAYERS[layer]}"
    kind = http_filter.type_name.rpartition(".")[2]
    name = f"filter {quote(http_filter.name)}"
    facts: dict[str, object] = {
        "name": http_filter.name,
        "type": http_filter.type_name,
        "is_disabled": config is None,
        "override": None if layer is None else _LAYERS[layer],
    }
    if isinstance(config, FaultConfig) and (abort := _describe_abort(config, metadata)):
        facts |= {"abort": f"{name} {abort}", "is_certain": _is_certain(config, metadata)}
    state = "off" if config is None else _describe(config, metadata)
    return Explanation("filter", f"{name} ({kind}): {state}{source}", facts)


def config_in_force(
    http_filter: HttpFilter, layers: Sequence[FilterOverrides]
) -> tuple[object | None, int | None]:
    """The filter's config, None if it is off; and the layer that says so, if not the listener."""
    layer = override_layer(http_filter.name, tuple(layers))
    override = None if layer is None else layers[layer][http_filter.name]
    if is_filter_disabled(http_filter, override):
        return None, layer
    if override is not None and override.config is not None:
        return override.config, layer
    return http_filter.config, layer


def find_aborts(filters: Iterable[Explanation]) -> tuple[str, str]:
    """The first filter that ends every RPC; and the first before it that ends some."""
    some = ""
    for each in filters:
        abort = str(each.facts.get("abort", ""))
        if abort and each.facts["is_certain"]:
            return abort, some
        some = some or abort
    return "", some


def _describe(config: object, metadata: Metadata) -> str:
    match config:
        case RouterConfig():
            return "ends the chain"
        case StatefulSessionConfig(SessionCookie(name)):
            return f"keeps sessions by cookie {quote(name)}"
        case StatefulSessionConfig():
            return "does nothing to the RPC"
        case FaultConfig():
            return _describe_fault(config, metadata)
        case _:
            return str(config)


def _describe_fault(config: FaultConfig, metadata: Metadata) -> str:
    delay, limit = find_delay(config, metadata), config.max_active_faults
    said = []
    if delay is not None and (share := _share(delay)):
        said.append(f"delays {share} by {delay.value:g} s")
    said.append(_describe_abort(config, metadata))
    text = "; ".join(filter(None, said))
    if not text or limit == 0:
        return "does nothing to the RPC"
    return text if limit is None else f"{text}; as long as fewer than {limit} RPCs are delayed"


def _describe_abort(config: FaultConfig, metadata: Metadata) -> str:
    abort = find_abort(config, metadata)
    if abort is None or config.max_active_faults == 0 or not (share := _share(abort)):
        return ""
    return f"aborts {share} with {abort.value.name}"


def _is_certain(config: FaultConfig, metadata: Metadata) -> bool:
    abort = find_abort(config, metadata)
    is_each = abort is not None and abort.numerator >= abort.denominator
    return is_each and config.max_active_faults is None


def _share(chance: Chance[Any]) -> str:
    """In words; empty if it never happens."""
    if not chance.numerator:
        return ""
    percent = 100 * chance.numerator / chance.denominator
    return f"{percent:.4g} % of RPCs" if chance.numerator < chance.denominator else "every RPC"
