"""Counters of dropped RPCs, for channels with a stats plugin.

Specs: A27 (drops), A32 (circuit breaker). The instruments are our own: no gRFC has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import one_line
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.metrics.instruments import CIRCUIT_BREAKER_DROPS, CLUSTER_DROPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.metrics import Metrics


def count_drop(
    metrics: Metrics,
    cluster: str,
    count_load: Callable[[str | None], None] | None,
    category: str | None,
) -> None:
    """Count a dropped RPC, also in load reports. The circuit breaker's have no category."""
    if count_load is not None:
        count_load(category)
    if category is None:
        metrics.count(CIRCUIT_BREAKER_DROPS, (metrics.target,), (cluster,))
    else:
        label = one_line(category, NAME_LENGTH_MAX)
        metrics.count(CLUSTER_DROPS, (metrics.target, label), (cluster,))
