"""The `pick_first` policy: the first address that connects takes all RPCs.

Specs: A62, and A61 (Happy Eyeballs).

policy          the policy: its phases, the subchannels and the delay timer
config          config, and the other settings of an update
happy_eyeballs  the decision: which address is tried when (pure)
candidate       one address of the list, with its subchannel
"""

from proxyless.lb.policies.pick_first.config import PickFirstConfig
from proxyless.lb.policies.pick_first.policy import PickFirst, PickFirstFactory

__all__ = ["PickFirst", "PickFirstConfig", "PickFirstFactory"]
