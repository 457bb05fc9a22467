"""Registries that load policies, resolvers and HTTP filters from installed packages.

A package offers them by entry points in its pyproject.toml:

    [project.entry-points."proxyless.lb_policies"]
    zone_aware = "my_package:ZoneAwareFactory"

    [project.entry-points."proxyless.resolvers"]
    file = "my_package:FileFactory"

    [project.entry-points."proxyless.http_filters"]
    "example.Tenants" = "my_package:TenantFilterFactory"

The left side is the name of the policy, the scheme of the targets, or the full name of a message
that configures the filter or overrides its config: one line for each. The right side is called
without arguments and returns the factory.

Entry points are read when a config or a target uses a name that is not registered, and only the one
of that name is imported (ADR 0003). So a broken package affects only those that use it, and no
package can replace what is built in or registered by the application.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from proxyless.lb import PolicyRegistry
from proxyless.resolver import ResolverRegistry
from proxyless.resolver.target import is_scheme
from proxyless.xds.filters import FilterRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import EntryPoint

    from proxyless.base import ValidationErrors
    from proxyless.lb import Helper, Policy, PolicyFactory
    from proxyless.resolver import ResolverFactory, Target
    from proxyless.runtime import Random
    from proxyless.xds.filters import ClientFilter, FilterFactory, FilterMessage

POLICIES: Final = "proxyless.lb_policies"
RESOLVERS: Final = "proxyless.resolvers"
FILTERS: Final = "proxyless.http_filters"


class InstalledPolicies(PolicyRegistry):
    """Policies of its own, and those of installed packages."""

    __slots__ = ()

    def find(self, name: str) -> PolicyFactory | None:
        factory = super().find(name)
        if factory is None and name in _names(POLICIES):
            try:
                return _load(POLICIES, name)  # type: ignore[no-any-return]
            except ValueError as error:
                return _UnusablePolicy(name, str(error))
        return factory

    @property
    def names(self) -> tuple[str, ...]:
        return _union(super().names, _names(POLICIES))

    def extended(self, factories: Iterable[PolicyFactory]) -> InstalledPolicies:
        return InstalledPolicies([*self._factories.values(), *factories])


class InstalledResolvers(ResolverRegistry):
    """Resolvers of its own, and those of installed packages."""

    __slots__ = ()

    def find(self, scheme: str) -> ResolverFactory | None:
        factory = super().find(scheme)
        if factory is None and scheme in _names(RESOLVERS):
            return _load(RESOLVERS, scheme)  # type: ignore[no-any-return]
        return factory

    @property
    def schemes(self) -> tuple[str, ...]:
        return _union(super().schemes, _names(RESOLVERS))

    def match_target(self, text: str) -> tuple[ResolverFactory, Target]:
        prefix, _, rest = text.partition(":")
        scheme = prefix.lower()
        # "localhost:50051" is a host and a port: entry points need not be read.
        if rest and not rest.isdigit() and is_scheme(scheme) and scheme not in self._factories:
            factory = self.find(scheme)
            if factory is not None:
                return ResolverRegistry([factory]).match_target(text)
        return super().match_target(text)

    def extended(self, factories: Iterable[ResolverFactory]) -> InstalledResolvers:
        return InstalledResolvers(
            [*self._factories.values(), *factories], default_scheme=self._default_scheme
        )


class InstalledFilters(FilterRegistry):
    """HTTP filters of its own, and those of installed packages."""

    __slots__ = ()

    def get(self, type_name: str) -> FilterFactory | None:
        factory = super().get(type_name)
        if factory is None and type_name in _names(FILTERS):
            try:
                return _load(FILTERS, type_name)  # type: ignore[no-any-return]
            except ValueError as error:
                return _UnusableFilter(type_name, str(error))
        return factory

    @property
    def type_names(self) -> tuple[str, ...]:
        return _union(super().type_names, _names(FILTERS))

    def extended(self, factories: Iterable[FilterFactory]) -> InstalledFilters:
        return InstalledFilters([*self._factories, *factories])


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


class _UnusablePolicy:
    """Factory of a policy that cannot be loaded: every config of it is an error with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        self.name: Final = name
        self._reason = reason

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        errors.add(self._reason)
        return None

    def create(self, helper: Helper) -> Policy:
        raise AssertionError("a policy whose config was refused is never created")


class _UnusableFilter:
    """Factory of a filter that cannot be loaded. Not terminal, so that any position is valid."""

    is_terminal: Final = False

    def __init__(self, type_name: str, reason: str) -> None:
        self.config_types: Final = (type_name,)
        self.override_types: Final = (type_name,)
        self._reason = reason

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> object:
        errors.add(self._reason)
        return None

    parse_override = parse_config

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        raise AssertionError("a filter whose config was refused is never created")


def _list_messages(factory: FilterFactory) -> tuple[str, ...]:
    # Checked here, because an error while a listener is parsed would not name the package.
    if not isinstance(factory.is_terminal, bool):
        raise TypeError(f"is_terminal is {factory.is_terminal!r}, wanted True or False")
    return _union(tuple(factory.config_types), tuple(factory.override_types))


# For each group, what its names are, and the names of a factory.
_NAMES: Final[dict[str, tuple[str, Callable[[Any], tuple[str, ...]]]]] = {
    POLICIES: ("name", lambda factory: (factory.name,)),
    RESOLVERS: ("scheme", lambda factory: (factory.scheme,)),
    FILTERS: ("message", _list_messages),
}


@cache
def _load(group: str, name: str) -> Any:  # noqa: ANN401 - any kind of factory
    """The factory of this name. Raises ValueError with the reason if it cannot be loaded."""
    offers = [each for each in _entry_points(group) if each.name == name]
    described = " and by ".join(map(_describe, offers))
    if len(offers) > 1:
        raise ValueError(f"entry point {name!r} of {group} is offered by {described}, wanted one")
    [offer] = offers
    noun, list_names = _NAMES[group]
    try:
        factory = offer.load()()
        own_names = list_names(factory)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"entry point {name!r} of {group}, by {described}: {what}") from error
    if name not in own_names:
        raise ValueError(
            f"entry point {name!r} of {group}, by {described}: "
            f"factory has the {noun} {' and '.join(map(repr, own_names))}, wanted {name!r}"
        )
    return factory


def _describe(offer: EntryPoint) -> str:
    package = offer.dist.name if offer.dist is not None else "unknown"
    return f"package {package!r} ({offer.value})"


@cache
def _names(group: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(offer.name for offer in _entry_points(group)))


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    # Imported here, because the import takes longer than that of this module.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return tuple(entry_points(group=group))


def clear_caches() -> None:
    """Read entry points again, after a package was installed while the program is running."""
    for cached in (_names, _entry_points, _load):
        cached.cache_clear()
