"""Which policies does a channel know?

Specs: A24. A registry is an object handed over; nothing registers itself (ADR 0003).
"""

from collections.abc import Iterable

from proxyless.lb.api import PolicyFactory


class PolicyRegistry:
    """Finds a factory by the name of its policy. Does not change; `extended` makes a new one."""

    __slots__ = ("_factories",)

    def __init__(self, factories: Iterable[PolicyFactory] = ()) -> None:
        self._factories: dict[str, PolicyFactory] = {}
        for factory in factories:
            if (other := self._factories.get(factory.name)) is not None:
                raise ValueError(
                    f"policy {factory.name!r} is registered twice: by {other!r} and by {factory!r}"
                )
            self._factories[factory.name] = factory

    def find(self, name: str) -> PolicyFactory | None:
        """The factory of that exact name; None if there is none."""
        return self._factories.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def extended(self, factories: Iterable[PolicyFactory]) -> "PolicyRegistry":
        """A registry that knows these, too."""
        return PolicyRegistry([*self._factories.values(), *factories])
