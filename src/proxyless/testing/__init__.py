"""Does my policy do what a channel expects of it? For those who write policies.

check_policy  the conformance kit: scenarios and random walks that every policy must survive
rules         what is demanded, one Rule each, and ConformanceError, which says which is broken
world         Traits: where a policy may be different; what is demanded at each step
fakes         FakeHelper, FakeSubchannel, FakeConnection: for tests of one's own
children      what a policy with children owes them
steps         what can happen to a policy, as values
scenarios     the stories that are always run
walk          the random ones

Everything happens on a VirtualClock, without a loop and without sockets. Nothing of Proxyless
imports this room.
"""

from proxyless.runtime import VirtualClock
from proxyless.testing.check_policy import SEEDS, check_policy
from proxyless.testing.fakes import (
    ANY_RPC,
    FakeConnection,
    FakeHelper,
    FakeSubchannel,
    Report,
    address,
)
from proxyless.testing.rules import ConformanceError, Rule, Story
from proxyless.testing.world import Sticky, Traits

__all__ = [
    "ANY_RPC",
    "SEEDS",
    "ConformanceError",
    "FakeConnection",
    "FakeHelper",
    "FakeSubchannel",
    "Report",
    "Rule",
    "Sticky",
    "Story",
    "Traits",
    "VirtualClock",
    "address",
    "check_policy",
]
