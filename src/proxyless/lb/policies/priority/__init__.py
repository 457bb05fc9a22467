"""The `priority_experimental` policy: the highest priority that is usable takes all RPCs.

Specs: A56, A115.

policy  config, decision (`choose`) and policy
"""

from proxyless.lb.policies.priority.policy import ChildConfig, PriorityConfig, PriorityFactory

__all__ = ["ChildConfig", "PriorityConfig", "PriorityFactory"]
