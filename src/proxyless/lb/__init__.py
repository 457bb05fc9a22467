"""Load balancing: the policy interface, and the policies that are not specific to xDS.

api              interface between a policy and its parent
config           parser of LoadBalancingConfig lists
policies         the policies, one module or package each

graceful_switch  replaces a policy by one of another kind without failing RPCs
hierarchy        distributes endpoints to children by hierarchical path
aggregate        connectivity state of a policy from the states of its children
retained_child   child that is kept for 15 minutes after its last use
forwarding       helper and subchannel that forward to the parent's
delegating       base of policies with one child that does the work
orca             load reports of backends
pickers          pickers that several policies use
attributes       attribute keys that several policies share
connection_limit  maximum number of connections of a subchannel (A105)
description      description of a policy tree (`LbNode`)
reentrancy       `Hold`: defers a policy's report while it calls its children

The channel implements `Helper` and `Subchannel`; policies have no access to it (ADR 0001).
"""

from typing import TYPE_CHECKING

from proxyless.base.lazy_exports import lazy_exports
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
    HeadTracker,
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
from proxyless.lb.description import LbNode
from proxyless.lb.graceful_switch import GracefulSwitchPolicy
from proxyless.lb.hierarchy import with_path
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, IdlePicker, QueuePicker, SubchannelPicker

if TYPE_CHECKING:
    from proxyless.lb.orca import LoadReport
else:
    # Used by channels whose backends report their load.
    __getattr__ = lazy_exports(__name__, {"LoadReport": "orca"})

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
    "GracefulSwitchPolicy",
    "HeadTracker",
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
