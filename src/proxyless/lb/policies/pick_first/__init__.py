"""The `pick_first` policy: sends all RPCs to the first address that connects.

Specs: A62, A61 (Happy Eyeballs), A113 (weighted shuffling).

policy          the policy: its phases, the subchannels and the delay timer
config          config, and the other settings of an update
happy_eyeballs  pure decision: when each address is attempted
candidate       one address of the list, with its subchannel
shuffling       order of the endpoints if it is random (A62, A113)
connection_metrics  attempts and disconnections, for stats plugins (A78)
"""

from proxyless.lb.policies.pick_first.config import PickFirstConfig
from proxyless.lb.policies.pick_first.policy import PickFirstFactory, PickFirstPolicy

__all__ = ["PickFirstConfig", "PickFirstFactory", "PickFirstPolicy"]
