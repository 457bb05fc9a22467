"""Candidate of pick_first: one address, its subchannel, and the watches on it."""

from typing import Final, Protocol

from proxyless.base import HTTP_PROXY, OK, Address, Attributes, State, Status
from proxyless.lb.api import Cancel, Subchannel, no_op
from proxyless.lb.description import LbNode, describe_subchannel


class CandidateOwner(Protocol):
    """Interface of the policy to its candidates."""

    def on_candidate_state(self, candidate: "Candidate", before: State) -> None: ...

    def on_candidate_health(self, candidate: "Candidate", state: State, error: Status) -> None: ...


class Candidate:
    """One address of the list, and its subchannel."""

    __slots__ = (
        "_end_health_watch",
        "_owner",
        "address",
        "attributes",
        "error",
        "health_error",
        "index",
        "state",
        "subchannel",
    )

    def __init__(
        self,
        owner: CandidateOwner,
        address: Address,
        attributes: Attributes,
        subchannel: Subchannel,
    ) -> None:
        # Fixed at construction. The subchannel's own address may differ.
        self._owner = owner
        self.address: Final = address
        self.attributes: Final = attributes
        self.subchannel: Final = subchannel
        # The index of the address in the list, set by the owner.
        self.index = 0
        # Published by the subchannel.
        self.state = State.IDLE
        self.error = self.health_error = OK
        self._end_health_watch: Cancel = no_op
        subchannel.watch(self.on_state)

    def on_state(self, state: State, error: Status) -> None:
        before, self.state, self.error = self.state, state, error
        self._owner.on_candidate_state(self, before)

    def describe(self) -> LbNode:
        proxy = self.attributes.get(HTTP_PROXY)
        note = "" if proxy is None else proxy.describe()
        return describe_subchannel(self.address, self.state, self.error, note)

    def watch_health(self) -> None:
        self._end_health_watch = self.subchannel.watch_health(self.on_health)

    def end_health_watch(self) -> None:
        # The watch refers to this object: without it, there is no reference cycle.
        end, self._end_health_watch = self._end_health_watch, no_op
        end()

    def release(self) -> None:
        """Release the subchannel, which ends its watches."""
        self._end_health_watch = no_op
        self.subchannel.release()

    def on_health(self, state: State, error: Status) -> None:
        self.health_error = error
        self._owner.on_candidate_health(self, state, error)
