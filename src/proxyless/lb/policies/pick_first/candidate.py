"""One address that pick_first may choose: what does its subchannel say, and who wants to know?"""

from typing import Final, Protocol

from proxyless.base import HTTP_PROXY, OK, Address, Attributes, State, Status
from proxyless.lb.api import Cancel, Subchannel
from proxyless.lb.view import LbNode, describe_subchannel


class Owner(Protocol):
    """The policy that holds candidates. Driven by them."""

    def on_candidate_state(self, candidate: "Candidate", before: State) -> None:
        """A candidate has changed its state, or tells its first one."""
        ...

    def on_candidate_health(self, candidate: "Candidate", state: State, error: Status) -> None:
        """The health of a candidate is this now."""
        ...


class Candidate:
    """One address of the list and its subchannel. Driven by the subchannel."""

    __slots__ = (
        "_owner",
        "address",
        "attributes",
        "end_health_watch",
        "error",
        "health_error",
        "index",
        "state",
        "subchannel",
    )

    def __init__(
        self, owner: Owner, address: Address, attributes: Attributes, subchannel: Subchannel
    ) -> None:
        # Fixed at construction. A subchannel may know its address by another name.
        self._owner = owner
        self.address: Final = address
        self.attributes: Final = attributes
        self.subchannel: Final = subchannel
        # The owner's to set: where in the list the address is.
        self.index = 0
        # Told by the subchannel.
        self.state = State.IDLE
        self.error = self.health_error = OK
        self.end_health_watch: Cancel = _nothing_to_end
        subchannel.watch(self.on_state)

    def on_state(self, state: State, error: Status) -> None:
        before, self.state, self.error = self.state, state, error
        self._owner.on_candidate_state(self, before)

    def describe(self) -> LbNode:
        proxy = self.attributes.get(HTTP_PROXY)
        note = "" if proxy is None else proxy.describe()
        return describe_subchannel(self.address, self.state, self.error, note)

    def watch_health(self) -> None:
        self.end_health_watch = self.subchannel.watch_health(self.on_health)

    def on_health(self, state: State, error: Status) -> None:
        self.health_error = error
        self._owner.on_candidate_health(self, state, error)


def _nothing_to_end() -> None:
    return
