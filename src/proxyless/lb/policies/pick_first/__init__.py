"""The `pick_first` policy: the first address that connects takes all RPCs.

Specs: A62, and A61 (Happy Eyeballs).

policy          config, and the policy: owns the subchannels and the delay timer
happy_eyeballs  the decision: which address is tried when (pure)
candidate       one address of the list, with its subchannel
"""

from proxyless.lb.policies.pick_first.policy import PickFirst, PickFirstConfig, PickFirstFactory

__all__ = ["PickFirst", "PickFirstConfig", "PickFirstFactory"]
