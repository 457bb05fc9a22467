"""What can happen to a policy, one step at a time?

Steps are values: they can be written down as a scenario, drawn at random, printed in the order they
happened, and taken again. A step that makes no sense in the world it meets does nothing, so that
others may be left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, Key, State
from proxyless.base.frozen import frozen
from proxyless.testing.fakes import address

if TYPE_CHECKING:
    from proxyless.testing.world import World

# The names of an endpoint's addresses.
Names = tuple[str, ...]

# So that the attributes of an endpoint can change.
REVISION: Final = Key[int]("testing_revision")
# Lists that are longer than this are printed by their length.
_PRINTED_MAX: Final = 12


class Step(Protocol):
    """One thing that happens. Its text says it in a few words."""

    def apply(self, world: World) -> None:
        """Let it happen, and what is to happen soon after; check what must be true then."""
        ...


class Cause(Step, Protocol):
    """A step that something else can follow before it has had any effect."""

    def begin(self, world: World) -> None:
        """Let only the thing itself happen."""
        ...


@frozen
class Resolve:
    """An update with these endpoints."""

    endpoints: tuple[Names, ...]
    revision: int = 0

    def apply(self, world: World) -> None:
        attributes = EMPTY_ATTRIBUTES
        if self.revision:
            attributes = attributes.with_(REVISION, self.revision)
        world.resolve(
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
    """An update with an error in place of endpoints."""

    text: str = "no such host"

    def apply(self, world: World) -> None:
        world.resolver_error(self.text)

    def __str__(self) -> str:
        return f"update: resolver error {self.text!r}"


@frozen
class Become:
    """The connections to these addresses change, all of them before anything happens soon after.

    Without names it is every one that the policy has a subchannel to.
    """

    state: State
    names: Names = ()

    def begin(self, world: World) -> None:
        world.begin_change(self.names, self.state)

    def apply(self, world: World) -> None:
        world.change_connections(self.names, self.state)

    def __str__(self) -> str:
        return f"{', '.join(self.names) or 'every connection that can'} becomes {self.state}"


@frozen
class ConnectElsewhere:
    """Somebody else shares connections with us: these, which the policy does not have, are so."""

    state: State
    names: Names

    def apply(self, world: World) -> None:
        world.connect_elsewhere(self.names, self.state)

    def __str__(self) -> str:
        names = self.names if len(self.names) <= _PRINTED_MAX else (f"{len(self.names)} addresses",)
        return f"{', '.join(names)} is {self.state} for somebody else who shares it"


@frozen
class BecomeHealthy:
    """What a policy learns that watches health."""

    state: State
    name: str

    def apply(self, world: World) -> None:
        world.change_health(self.name, self.state)

    def __str__(self) -> str:
        return f"health of {self.name} becomes {self.state}"


@frozen
class Pick:
    """RPCs come."""

    count: int = 1

    def begin(self, world: World) -> None:
        world.begin_picks(self.count)

    def apply(self, world: World) -> None:
        world.pick(self.count)

    def __str__(self) -> str:
        return f"pick {self.count} times" if self.count > 1 else "pick"


@frozen
class KeepWaiting:
    """From now on this many RPCs wait for each new picker."""

    count: int

    def apply(self, world: World) -> None:
        world.keep_waiting(self.count)

    def __str__(self) -> str:
        return f"{self.count} RPCs wait for each new picker from now on"


@frozen
class ExitIdle:
    """The application wants a connection."""

    def apply(self, world: World) -> None:
        world.exit_idle()

    def __str__(self) -> str:
        return "exit_idle"


@frozen
class ResetBackoff:
    """The application knows that the network is back."""

    def apply(self, world: World) -> None:
        world.reset_backoff()

    def __str__(self) -> str:
        return "reset_backoff"


@frozen
class Advance:
    """Time passes."""

    seconds: float

    def apply(self, world: World) -> None:
        world.advance(self.seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s pass"


@frozen
class Calm:
    """All trouble is over: every attempt succeeds, and RPCs keep coming."""

    def apply(self, world: World) -> None:
        world.calm_down()

    def __str__(self) -> str:
        return "calm: every attempt succeeds, and RPCs keep coming"


@frozen
class Close:
    """The end."""

    def apply(self, world: World) -> None:
        world.close()

    def __str__(self) -> str:
        return "close"


@frozen
class AtOnce:
    """Two things of which the second happens before the first has had any effect."""

    first: Cause
    second: Step

    def apply(self, world: World) -> None:
        self.first.begin(world)
        self.second.apply(world)

    def __str__(self) -> str:
        return f"{self.first}, and before anything happens soon after: {self.second}"
