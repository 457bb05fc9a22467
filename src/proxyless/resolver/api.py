"""Interfaces of resolvers, their factories and listeners.

Specs: A31 (a result carries a config selector), A21 (a service config may be bad).

Theory of operation
    A resolver lives on one loop. Its owner starts it, then gets results through its listener: the
    first as soon as there is one, later ones after a change or a request. A failure is a result,
    too: a `Status` in place of the endpoints. The listener is never called inside a call to the
    resolver, and never after `close`. It may call any method of the resolver inside `on_result`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proxyless.base import EMPTY_ATTRIBUTES, NULL_TRACE, Attributes, Endpoint, Status, Trace
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.resolver.target import Target
    from proxyless.runtime import Clock, Network, Random


@frozen
class ResolverResult:
    """A complete result. It replaces the previous one."""

    # After an error, a listener keeps the endpoints of an earlier result.
    endpoints: tuple[Endpoint, ...] | Status
    # The JSON object, which the channel parses; None without one.
    service_config: Mapping[str, object] | Status | None = None
    # For the policies, and for the channel itself (config selector).
    attributes: Attributes = EMPTY_ATTRIBUTES
    # Source or problem of the endpoints, for error texts.
    resolution_note: str = ""


class ResolverListener(Protocol):
    """Called by a resolver; implemented by the channel."""

    def on_result(self, result: ResolverResult) -> Status:
        """Use this result. Returns OK, or the reason why it cannot be used.

        A resolver that polls then resolves again after a backoff, as after a failure (A21).
        """


class Resolver(Protocol):
    """Resolves one target, and calls its listener with each result."""

    def start(self) -> None:
        """Called once, before any other method except `close`."""

    def request_reresolution(self) -> None:
        """Hint that the last result may be stale: resolve again, rate limited, or do nothing."""

    def reset_backoff(self) -> None:
        """End a backoff now, and reset it."""

    def close(self) -> None:
        """Stop: call the listener no more; cancel timers and tasks. Idempotent."""


@runtime_checkable
class ExplainedResolver(Resolver, Protocol):
    """Resolver that helps to find mistakes: its texts end those of RPCs that never succeeded."""

    def describe_wait(self) -> Status:
        """What the first result waits for; OK if that is unknown."""

    def name_command(self, path: str) -> str:
        """Command that explains RPCs of this method; empty if there is none."""


@frozen
class ResolverContext:
    """Tools of a resolver, and the options of its channel."""

    network: Network
    clock: Clock
    random: Random
    trace: Trace = NULL_TRACE
    # The channel's options by their grpcio names. Not in the repr: they may contain a password.
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


class ResolverFactory(Protocol):
    """Creates resolvers for the targets of one scheme."""

    @property
    def scheme(self) -> str: ...

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        """A resolver that is not started. Raises ValueError for a malformed target or option."""

    def default_authority(self, target: Target) -> str:
        """The `:authority` of calls to this target, or ValueError as from `create`.

        By default, TLS checks the host in it.
        """
