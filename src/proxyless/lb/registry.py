"""Which policies does a channel know?

Specs: A24. A registry is an object handed over; nothing registers itself (ADR 0003).
"""

from collections.abc import Iterable
from importlib import import_module

from proxyless.base.frozen import frozen
from proxyless.lb.api import PolicyFactory


@frozen
class DeferredFactory:
    """Where a factory is that nobody needs before a config names its policy."""

    # Of the policy.
    name: str
    # Where the class is, which is called without arguments.
    module: str
    factory: str

    def load(self) -> PolicyFactory:
        factory: PolicyFactory = getattr(import_module(self.module), self.factory)()
        return factory


class PolicyRegistry:
    """Finds a factory by the name of its policy. Does not change; `extended` makes a new one."""

    __slots__ = ("_factories",)

    def __init__(self, factories: Iterable[PolicyFactory | DeferredFactory] = ()) -> None:
        self._factories: dict[str, PolicyFactory | DeferredFactory] = {}
        for factory in factories:
            if (other := self._factories.get(factory.name)) is not None:
                raise ValueError(
                    f"policy {factory.name!r} is registered twice: by {other!r} and by {factory!r}"
                )
            self._factories[factory.name] = factory

    def find(self, name: str) -> PolicyFactory | None:
        """The factory of that exact name; None if there is none."""
        factory = self._factories.get(name)
        if isinstance(factory, DeferredFactory):
            factory = self._factories[name] = factory.load()
        return factory

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def extended(self, factories: Iterable[PolicyFactory]) -> "PolicyRegistry":
        """A registry that knows these, too."""
        return PolicyRegistry([*self._factories.values(), *factories])
