"""The `priority_experimental` policy: sends all RPCs to the highest usable priority.

Specs: A56, A115.

policy  config and policy
choice  the decision, as a pure function of the children's states
"""

from proxyless.lb.policies.priority.policy import (
    PriorityChildConfig,
    PriorityConfig,
    PriorityFactory,
)

__all__ = ["PriorityChildConfig", "PriorityConfig", "PriorityFactory"]
