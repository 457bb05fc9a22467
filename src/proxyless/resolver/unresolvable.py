"""Factory and registry for targets that cannot be resolved: the only result is the reason.

As in grpcio, a channel is created for any text, and its RPCs fail with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.resolver.registry import ResolverRegistry
from proxyless.resolver.static import StaticResolver
from proxyless.resolver.target import Target

if TYPE_CHECKING:
    from proxyless.base import Status
    from proxyless.resolver.api import ResolverContext, ResolverListener

# Reserved for invalid names (RFC 6761). No request has it.
_AUTHORITY: Final = "invalid"


@frozen
class UnresolvableFactory:
    """Creates resolvers that report one failure."""

    reason: Status
    scheme: str = "dns"

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> StaticResolver:
        return StaticResolver(self.reason, listener, context.clock)

    def default_authority(self, target: Target) -> str:
        return _AUTHORITY


class UnresolvableTargets(ResolverRegistry):
    """Registry that matches every target with an `UnresolvableFactory`."""

    __slots__ = ("_reason",)

    def __init__(self, reason: Status) -> None:
        super().__init__()
        self._reason = reason

    def match_target(self, text: str) -> tuple[UnresolvableFactory, Target]:
        return UnresolvableFactory(self._reason), Target(self._default_scheme, "", f"/{text}")
