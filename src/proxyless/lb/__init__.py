"""Which backend does an RPC go to? Load balancing policies, and all they are made of.

api              what a policy and its parent say to each other
config           which policy a LoadBalancingConfig list asks for
policies         the policies that are not xDS's own, one file each

graceful_switch  one kind of policy replaces another without failing RPCs
hierarchy        which endpoints are for which child
aggregate        the state of a policy from the states of its children
endpoint_list    one pick_first per endpoint, for policies that spread RPCs
petiole          what such policies report
ring             who owns which part of the hash space
ring_picker      where an RPC goes on the ring
stride           whose turn is it, if turns are in proportion to weights
orca             what a backend says about its load
happy_eyeballs   which address is tried when
retained_child   a child that outlives its use for 15 minutes
reentrancy       hold a reaction while children are called; act once, after the current call
forwarding       standing between a child and the rest of the world
delegating       a policy that has another one do its work
attributes       what is told about endpoints and RPCs: keys that several policies know
view             what a tree of policies looks like to somebody who asks
pickers          pickers that many policies need

The channel implements `Helper` and `Subchannel`; no policy ever sees the channel (ADR 0001).
"""

from proxyless.lb.api import (
    QUEUE,
    CallEnd,
    CallTracker,
    Cancel,
    Complete,
    Context,
    Drop,
    Endpoints,
    Fail,
    Helper,
    LoadListener,
    Picker,
    PickInfo,
    PickResult,
    Policy,
    PolicyFactory,
    PolicyRegistry,
    Queue,
    StateListener,
    Subchannel,
    Update,
)
from proxyless.lb.attributes import ENDPOINT_WEIGHT, HASH_KEY, HEALTH_WATCH, REQUEST_HASH
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.lb.delegating import DelegatingPolicy
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.hierarchy import with_path
from proxyless.lb.orca import LoadReport
from proxyless.lb.pickers import (
    QUEUE_PICKER,
    FailPicker,
    IdlePicker,
    QueuePicker,
    SubchannelPicker,
)
from proxyless.lb.view import LbNode

__all__ = [
    "ENDPOINT_WEIGHT",
    "HASH_KEY",
    "HEALTH_WATCH",
    "QUEUE",
    "QUEUE_PICKER",
    "REQUEST_HASH",
    "CallEnd",
    "CallTracker",
    "Cancel",
    "Complete",
    "Context",
    "DelegatingPolicy",
    "Drop",
    "Endpoints",
    "Fail",
    "FailPicker",
    "GracefulSwitch",
    "Helper",
    "IdlePicker",
    "LbNode",
    "LoadListener",
    "LoadReport",
    "PickInfo",
    "PickResult",
    "Picker",
    "Policy",
    "PolicyConfig",
    "PolicyFactory",
    "PolicyRegistry",
    "Queue",
    "QueuePicker",
    "StateListener",
    "Subchannel",
    "SubchannelPicker",
    "Update",
    "parse_policy_list",
    "with_path",
]
