"""Unit tests of proxyless.lb.policies.ring_hash.policy; see spec/test_ring_hash.py."""

import itertools

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, State, hits
from proxyless.lb import REQUEST_HASH, PickInfo
from proxyless.lb.aggregate import StateCounts
from proxyless.lb.policies.ring_hash import RingHashFactory
from proxyless.lb.policies.ring_hash.policy import aggregate_endpoints, needs_attempt
from proxyless.testing import Traits, check_policy
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, PolicyWorld

STATES = (IDLE, CONNECTING, READY, FAILURE)
SMALL = {"minRingSize": 60, "maxRingSize": 100}


def count(*states: State) -> StateCounts:
    counts = StateCounts()
    for state in states:
        counts.add(state)
    return counts


@pytest.mark.parametrize("request_hash", [0, 7**20, 2**63 + 5])
def test_policy_conforms_with_any_hash(request_hash: int) -> None:
    attributes = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, request_hash)
    rpc = PickInfo("/testing.Service/Method", attributes=attributes)
    check_policy(RingHashFactory(), config=SMALL, traits=Traits(rpc=rpc), seeds=range(30))


@pytest.mark.parametrize("metadata", [(), (("user", "x"),)])
def test_policy_conforms_with_a_header(metadata: tuple[tuple[str, str], ...]) -> None:
    config = {**SMALL, "requestHashHeader": "user"}
    rpc = PickInfo("/testing.Service/Method", metadata)
    check_policy(RingHashFactory(), config=config, traits=Traits(rpc=rpc), seeds=range(30))


def test_aggregated_state_is_that_of_the_first_applicable_rule() -> None:
    for size in range(1, 5):
        for states in itertools.product(STATES, repeat=size):
            failing = states.count(FAILURE)
            rules = (
                (READY in states, READY),
                (failing >= 2, FAILURE),
                (CONNECTING in states, CONNECTING),
                (failing == 1 and size > 1, CONNECTING),
                (IDLE in states, IDLE),
                (True, FAILURE),
            )
            expected = next(state for applies, state in rules if applies)
            assert aggregate_endpoints(count(*states)) is expected, states


def test_attempt_is_needed_when_no_endpoint_is_connecting_or_ready() -> None:
    assert needs_attempt(FAILURE, count(FAILURE, FAILURE, IDLE))
    assert needs_attempt(CONNECTING, count(FAILURE, IDLE))
    assert not needs_attempt(FAILURE, count(FAILURE, FAILURE, CONNECTING, IDLE))
    assert not needs_attempt(CONNECTING, count(CONNECTING, IDLE))
    assert not needs_attempt(READY, count(READY, FAILURE, IDLE))
    assert not needs_attempt(IDLE, count(IDLE, IDLE))


def test_state_changes_are_traced() -> None:
    world = PolicyWorld(RingHashFactory())
    with hits(world.trace, "ring_hash.state") as events:
        world.update("a")
        world.policy.exit_idle()
        world.settle()
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [IDLE, CONNECTING, READY]
