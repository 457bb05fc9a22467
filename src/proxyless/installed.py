"""What do installed packages add to the default registries?

A package offers a policy, a resolver or an HTTP filter by an entry point in its pyproject.toml:

    [project.entry-points."proxyless.lb_policies"]
    zone_aware = "my_package:ZoneAwareFactory"

    [project.entry-points."proxyless.resolvers"]
    file = "my_package:FileFactory"

    [project.entry-points."proxyless.http_filters"]
    "example.Tenants" = "my_package:TenantFilterFactory"

The left side is the name of the policy, the scheme of the targets, or the full name of a message
that configures the filter or overrides its config: one line for each. The right side is called
without arguments, and gives the factory.

Nobody looks for packages before a config or a target names what is not known otherwise, and only
what is named is imported (ADR 0003). So a package that is broken harms nobody who does not use it,
and none can take the place of what is built in or handed over.
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
    """Knows some policies itself, and asks installed packages for all others."""

    __slots__ = ()

    def find(self, name: str) -> PolicyFactory | None:
        known = super().find(name)
        if known is not None or name not in _names(POLICIES):
            return known
        try:
            return _load_policy(name)
        except ValueError as error:
            return _UnusablePolicy(name, str(error))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().names, *_names(POLICIES))))

    def extended(self, factories: Iterable[PolicyFactory]) -> InstalledPolicies:
        return InstalledPolicies([*self._factories.values(), *factories])


class InstalledResolvers(ResolverRegistry):
    """Knows some schemes itself, and asks installed packages for all others."""

    __slots__ = ()

    def find(self, scheme: str) -> ResolverFactory | None:
        known = super().find(scheme)
        if known is not None or scheme not in _names(RESOLVERS):
            return known
        return _load_resolver(scheme)

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().schemes, *_names(RESOLVERS))))

    def match_target(self, text: str) -> tuple[ResolverFactory, Target]:
        prefix, _, rest = text.partition(":")
        scheme = prefix.lower()
        # "localhost:50051" is a host and its port: no reason to look for packages.
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
    """Knows some HTTP filters itself, and asks installed packages for all others."""

    __slots__ = ()

    def get(self, type_name: str) -> FilterFactory | None:
        known = super().get(type_name)
        if known is not None or type_name not in _names(FILTERS):
            return known
        try:
            return _load_filter(type_name)
        except ValueError as error:
            return _UnusableFilter(type_name, str(error))

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().type_names, *_names(FILTERS))))

    def extended(self, factories: Iterable[FilterFactory]) -> InstalledFilters:
        return InstalledFilters([*self._factories, *factories])


class _UnusablePolicy:
    """Stands in for a policy that cannot be loaded: whoever configures it learns why."""

    def __init__(self, name: str, why: str) -> None:
        self.name: Final = name
        self._why = why

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        errors.add(self._why)
        return None

    def create(self, helper: Helper) -> Policy:
        raise AssertionError("a policy whose config was refused is never created")


class _UnusableFilter:
    """The same for a filter. It ends no chain, so that nothing else is said about its place."""

    is_terminal: Final = False

    def __init__(self, type_name: str, why: str) -> None:
        self.config_types: Final = (type_name,)
        self.override_types: Final = (type_name,)
        self._why = why

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> object:
        errors.add(self._why)
        return None

    parse_override = parse_config

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        raise AssertionError("a filter whose config was refused is never created")


@cache
def _load_policy(name: str) -> PolicyFactory:
    factory: PolicyFactory = _load(POLICIES, name, "name", lambda found: (found.name,))
    return factory


@cache
def _load_resolver(scheme: str) -> ResolverFactory:
    factory: ResolverFactory = _load(RESOLVERS, scheme, "scheme", lambda found: (found.scheme,))
    return factory


@cache
def _load_filter(type_name: str) -> FilterFactory:
    factory: FilterFactory = _load(FILTERS, type_name, "message", _list_messages)
    return factory


def _list_messages(factory: FilterFactory) -> tuple[str, ...]:
    # Asked for while a listener is parsed, where nobody would know whose mistake it is.
    if not isinstance(factory.is_terminal, bool):
        raise TypeError(f"is_terminal is {factory.is_terminal!r}, wanted True or False")
    return tuple(dict.fromkeys((*factory.config_types, *factory.override_types)))


def _load(group: str, name: str, called: str, list_names: Callable[[Any], tuple[str, ...]]) -> Any:  # noqa: ANN401 - any kind of factory
    """The factory that goes by this name, or ValueError that says why there is none."""
    offers = [each for each in _entry_points(group) if each.name == name]
    described = " and by ".join(map(_describe, offers))
    if len(offers) > 1:
        raise ValueError(f"entry point {name!r} of {group} is offered by {described}, wanted one")
    [offer] = offers
    try:
        factory = offer.load()()
        own_names = list_names(factory)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"entry point {name!r} of {group}, by {described}: {what}") from error
    if name not in own_names:
        raise ValueError(
            f"entry point {name!r} of {group}, by {described}: "
            f"factory has the {called} {' and '.join(map(repr, own_names))}, wanted {name!r}"
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
    # Imported when needed: it takes longer than the rest of this module.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return tuple(entry_points(group=group))


def forget_packages() -> None:
    """Look again the next time: a package was installed while the program is running."""
    for known in (_names, _entry_points, _load_policy, _load_resolver, _load_filter):
        known.cache_clear()
