"""Steps: events that a policy is tested with, as values.

Steps form scenarios and random walks, are printed in errors, and can be repeated. A step that is
impossible in the current state does nothing, so that steps can be left out to shorten an error.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Key, State
from proxyless.base.frozen import frozen
from proxyless.testing.fakes import address

if TYPE_CHECKING:
    from proxyless.testing.harness import PolicyHarness

# Short names of an endpoint's addresses.
Names = tuple[str, ...]

# Endpoint attribute whose value changes.
REVISION: Final = Key[int]("testing_revision")
# Longer lists are printed as their length.
_PRINTED_MAX: Final = 12


class Step(Protocol):
    """One event. Its `str` describes it in errors."""

    def apply(self, harness: PolicyHarness) -> None:
        """Cause the event, run the timers that are due, and check the rules."""


class DeferrableStep(Step, Protocol):
    """A step after which another step can come before the timers that are due run."""

    def begin(self, harness: PolicyHarness) -> None:
        """Cause only the event."""


@frozen
class Resolve:
    """An update with these endpoints."""

    endpoints: tuple[Names, ...]
    revision: int = 0

    def apply(self, harness: PolicyHarness) -> None:
        attributes = EMPTY_ATTRIBUTES
        if self.revision:
            attributes = attributes.with_(REVISION, self.revision)
        harness.resolve(
            tuple(Endpoint(tuple(map(address, names)), attributes) for names in self.endpoints)
        )

    def __str__(self) -> str:
        if len(self.endpoints) > _PRINTED_MAX:
            text = f"{len(self.endpoints)} endpoints from {self.endpoints[0][0]}"
        else:
            text = " ".join(",".join(names) for names in self.endpoints) or "no endpoints"
        return f"update: {text}" + (f" (attributes {self.revision})" if self.revision else "")


@frozen
class ResolverError:
    """An update with a resolver error."""

    text: str = "no such host"

    def apply(self, harness: PolicyHarness) -> None:
        harness.resolver_error(self.text)

    def __str__(self) -> str:
        return f"update: resolver error {self.text!r}"


@frozen
class Become:
    """A change of the connections to these addresses; without names, of all of the policy's."""

    state: State
    names: Names = ()

    def begin(self, harness: PolicyHarness) -> None:
        harness.begin_change(self.names, self.state)

    def apply(self, harness: PolicyHarness) -> None:
        harness.change_connections(self.names, self.state)

    def __str__(self) -> str:
        return f"{', '.join(self.names) or 'every connection that can'} becomes {self.state}"


@frozen
class ShareConnection:
    """A state of connections that another channel uses and the policy does not use yet."""

    state: State
    names: Names

    def apply(self, harness: PolicyHarness) -> None:
        harness.share_connection(self.names, self.state)

    def __str__(self) -> str:
        names = self.names if len(self.names) <= _PRINTED_MAX else (f"{len(self.names)} addresses",)
        return f"{', '.join(names)} is {self.state} in another channel that shares it"


@frozen
class ChangeHealth:
    """A change of health, if the policy watches it."""

    state: State
    name: str

    def apply(self, harness: PolicyHarness) -> None:
        harness.change_health(self.name, self.state)

    def __str__(self) -> str:
        return f"health of {self.name} becomes {self.state}"


@frozen
class Pick:
    """Picks of this number of RPCs."""

    count: int = 1

    def begin(self, harness: PolicyHarness) -> None:
        harness.begin_picks(self.count)

    def apply(self, harness: PolicyHarness) -> None:
        harness.pick(self.count)

    def __str__(self) -> str:
        return f"pick {self.count} times" if self.count > 1 else "pick"


@frozen
class QueueRpcs:
    """Sets the number of RPCs that are queued, and picked with each new picker."""

    count: int

    def apply(self, harness: PolicyHarness) -> None:
        harness.queue_rpcs(self.count)

    def __str__(self) -> str:
        return f"{self.count} RPCs wait for each new picker from now on"


@frozen
class Advance:
    """An advance of the clock."""

    seconds: float

    def apply(self, harness: PolicyHarness) -> None:
        harness.advance(self.seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s pass"


class Action(Enum):
    """A step without arguments: calls the harness method of the same name."""

    EXIT_IDLE = "exit_idle"
    RESET_BACKOFF = "reset_backoff"
    RECOVER = "recovery: every attempt succeeds, and RPCs keep coming"
    CLOSE = "close"

    def apply(self, harness: PolicyHarness) -> None:
        getattr(harness, self.name.lower())()

    def __str__(self) -> str:
        return self.value


@frozen
class AtOnce:
    """Two steps, the second one before the timers that the first one started."""

    first: DeferrableStep
    second: Step

    def apply(self, harness: PolicyHarness) -> None:
        self.first.begin(harness)
        self.second.apply(harness)

    def __str__(self) -> str:
        return f"{self.first}, and before the next turn of the loop: {self.second}"
