"""The `priority_experimental` policy: sends all RPCs to the highest usable priority.

Specs: A56, A115.

policy  the policy, its children and their failover timers
config  the parsed config
choice  the decision, as a pure function of the children's states
"""

from proxyless.lb.policies.priority.config import PriorityChildConfig, PriorityConfig
from proxyless.lb.policies.priority.policy import PriorityFactory

__all__ = ["PriorityChildConfig", "PriorityConfig", "PriorityFactory"]
