"""Conformance kit and fakes for tests of load balancing policies.

check_policy  runs scenarios and random walks, and raises if the policy breaks a rule
rules         the rules, and ConformanceError
harness       Traits of a policy, and the checks of each step
fakes         FakeHelper, FakeSubchannel, FakeConnection
children      checks of the calls to a policy's children
steps         events that a policy is tested with, as values
scenarios     fixed lists of steps
walk          random lists of steps

Everything runs on a VirtualClock, without an event loop or sockets. No other package of Proxyless
imports this one.
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
from proxyless.testing.harness import Sticky, Traits
from proxyless.testing.rules import ConformanceError, Reproduction, Rule

__all__ = [
    "ANY_RPC",
    "SEEDS",
    "ConformanceError",
    "FakeConnection",
    "FakeHelper",
    "FakeSubchannel",
    "Report",
    "Reproduction",
    "Rule",
    "Sticky",
    "Traits",
    "VirtualClock",
    "address",
    "check_policy",
]
