"""ResolverRegistry: resolver factories by scheme. Passed to channels; not global (ADR 0003)."""

from collections.abc import Callable, Iterable

from proxyless.base import Status, StatusCode, one_line
from proxyless.resolver.api import Resolver, ResolverContext, ResolverFactory, ResolverListener
from proxyless.resolver.target import Target, has_name, is_scheme, parse_target

DEFAULT_SCHEME = "dns"


class DeferredResolverFactory:
    """Factory that is created, and may be imported, when a target first has its scheme."""

    def __init__(self, scheme: str, make: Callable[[], ResolverFactory]) -> None:
        self.scheme = scheme
        self._make = make
        # Set at the first use.
        self._factory: ResolverFactory | None = None

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        return self._load().create(target, listener, context)

    def default_authority(self, target: Target) -> str:
        return self._load().default_authority(target)

    def _load(self) -> ResolverFactory:
        if self._factory is None:
            self._factory = self._make()
        return self._factory


class ResolverRegistry:
    """Immutable map of schemes to factories."""

    __slots__ = ("_default_scheme", "_factories")

    def __init__(
        self, factories: Iterable[ResolverFactory] = (), *, default_scheme: str = DEFAULT_SCHEME
    ) -> None:
        self._default_scheme = default_scheme
        self._factories: dict[str, ResolverFactory] = {}
        for factory in factories:
            self._add(factory)

    def _add(self, factory: ResolverFactory) -> None:
        scheme = factory.scheme
        if not is_scheme(scheme):
            raise ValueError(
                f"scheme {scheme!r} is not valid: wanted a lower-case letter, "
                "then lower-case letters, digits, '+', '-', '.'"
            )
        if (other := self._factories.get(scheme)) is not None:
            raise ValueError(
                f"scheme {scheme!r} is registered twice: by {other!r} and by {factory!r}"
            )
        self._factories[scheme] = factory

    def find(self, scheme: str) -> ResolverFactory | None:
        return self._factories.get(scheme)

    def was_given(self, scheme: str) -> bool:
        """Whether it has this factory itself, without loading a plugin."""
        return scheme in self._factories

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def match_target(self, text: str) -> tuple[ResolverFactory, Target]:
        """The factory for this target, and the parsed target. Raises ValueError."""
        target = parse_target(text, self._factories, self._default_scheme)
        factory = self._factories.get(target.scheme)
        if factory is None:
            raise ValueError(
                f"target {text!r} has no scheme and the default {target.scheme!r} is not known: "
                f"wanted one of {', '.join(self._factories) or 'none'}"
            )
        return factory, target

    def refuse_target(self, text: str) -> Status | None:
        """An error if the target is malformed, or None.

        The codes are grpcio's: UNAVAILABLE for an invalid DNS name, which includes text without a
        known scheme; otherwise UNKNOWN.
        """
        try:
            factory, target = self.match_target(text)
            factory.default_authority(target)
        except ValueError as error:
            is_name = has_name(text, self._factories, self._default_scheme)
            code = StatusCode.UNAVAILABLE if is_name else StatusCode.UNKNOWN
            return Status(code, one_line(str(error)))
        return None

    def extended(self, factories: Iterable[ResolverFactory]) -> "ResolverRegistry":
        """A registry with these factories added."""
        return ResolverRegistry(
            [*self._factories.values(), *factories], default_scheme=self._default_scheme
        )
