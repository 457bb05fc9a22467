"""The `weighted_round_robin` policy: sends RPCs in proportion to weights from load reports.

Specs: A58, A114, A100 (slow start).

policy      config, weights from load reports, picker and policy
slow_start  pure: growth of the weights of new endpoints
stride      pure: the scheduler, which chooses indices in proportion to weights
"""

from proxyless.lb.policies.weighted_round_robin.policy import (
    WeightedRoundRobinConfig,
    WeightedRoundRobinFactory,
)

__all__ = ["WeightedRoundRobinConfig", "WeightedRoundRobinFactory"]
