"""What do a channel and a resolver say to each other?

Specs: A31 (a result carries a config selector), A21 (a service config may be bad).

Theory of operation
    A resolver lives on one loop. Whoever made it starts it, then gets results through its
    listener: the first as soon as there is one, later ones when something changed or was asked
    for. A name that does not exist is a result, too: a `Status` where the endpoints would be.
    The listener is never called inside a call to the resolver, and never after `close`. It may
    call any method of the resolver while it hears a result.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from proxyless.base import EMPTY_ATTRIBUTES, NULL_TRACE, Attributes, Endpoint, Status, Trace
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.resolver.target import Target
    from proxyless.runtime import Clock, Network, Random


@frozen
class ResolverResult:
    """Everything a resolver knows at one time. Replaces the result before it as a whole."""

    # What was found, or why nothing was. A listener that has endpoints keeps them then.
    endpoints: tuple[Endpoint, ...] | Status
    # The JSON object as it came; the channel parses it. None if the resolver has none to give.
    service_config: Mapping[str, object] | Status | None = None
    # For the policies, and for the channel itself: a config selector comes under a key that no
    # public API shows.
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Where the endpoints came from or what is odd about them, for error texts.
    resolution_note: str = ""


class ResolverListener(Protocol):
    """Who wants to know. Driven by the resolver."""

    def on_result(self, result: ResolverResult) -> Status:
        """Use this from now on. OK, or why it cannot be used.

        A resolver that polls then treats the result as a failure of its own: it asks again after
        a backoff (A21).
        """
        ...


class Resolver(Protocol):
    """Finds out for one target and keeps its listener informed.

    Driven by its owner and by whatever it asks: a name server, a control plane.
    """

    def start(self) -> None:
        """Begin. Called once, before anything but `close`."""
        ...

    def request_reresolution(self) -> None:
        """Somebody doubts the last result: look again as soon as is polite, or do nothing."""
        ...

    def reset_backoff(self) -> None:
        """End a wait after a failure now, and start the next series of delays from its start."""
        ...

    def close(self) -> None:
        """Stop: no result from now on, no timer left, and each task ends at once. Idempotent."""
        ...


@frozen
class ResolverContext:
    """What a resolver acts through, and what its channel was configured with."""

    network: Network
    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    # The channel's options by name, as grpcio spells them. Not shown: a proxy may have a password.
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


class ResolverFactory(Protocol):
    """One kind of resolver, known by the scheme of its targets."""

    @property
    def scheme(self) -> str: ...

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        """A resolver that waits to be started, or ValueError: a malformed target or option."""
        ...

    def default_authority(self, target: Target) -> str:
        """The `:authority` of calls to this target, or ValueError as from `create`.

        What stands in front of its port is what TLS checks, unless told otherwise.
        """
        ...
