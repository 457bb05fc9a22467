"""The `weighted_round_robin` policy: endpoints take turns in proportion to their reported capacity.

Specs: A58, A114.

policy  config, weights from load reports, picker and policy
stride  the scheduler: whose turn it is, in proportion to weights (pure)
"""

from proxyless.lb.policies.weighted_round_robin.policy import (
    WeightedRoundRobinConfig,
    WeightedRoundRobinFactory,
)

__all__ = ["WeightedRoundRobinConfig", "WeightedRoundRobinFactory"]
