"""The `priority_experimental` policy: sends all RPCs to the highest usable priority.

Specs: A56, A115.

policy  config, decision (`choose`) and policy
"""

from proxyless.lb.policies.priority.policy import (
    PriorityChildConfig,
    PriorityConfig,
    PriorityFactory,
)

__all__ = ["PriorityChildConfig", "PriorityConfig", "PriorityFactory"]
