"""Registries whose topmost xDS policy reports each config and each pick to callbacks.

The observed policy wraps the real `xds_cluster_manager_experimental` and forwards every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.assembly import Registries
from proxyless.base.frozen import frozen
from proxyless.lb import PolicyRegistry
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.pickers import ForwardingPicker
from proxyless.xds.config.attributes import XDS_CONFIG
from proxyless.xds.lb.cluster_manager import NAME as CLUSTER_MANAGER
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.base import State, Status, ValidationErrors
    from proxyless.lb import Helper, Policy, PolicyFactory, Update
    from proxyless.lb.api import Picker, PickInfo, PickResult
    from proxyless.xds.config.xds_config import XdsConfig

    # Called with a config before it takes effect, and the clusters that are children of the policy.
    OnConfig = Callable[[XdsConfig, frozenset[str]], None]
    OnPick = Callable[[PickInfo, PickResult], None]


def observed_registries(on_config: OnConfig, on_pick: OnPick) -> Registries:
    """The default registries, with an observed policy as the topmost xDS policy."""
    defaults = Registries()
    factories: list[PolicyFactory] = []
    for name in defaults.policies.names:
        factory = defaults.policies.find(name)
        assert factory is not None, "a registry finds what it names"
        if name == CLUSTER_MANAGER:
            factory = _ObservedFactory(factory, on_config, on_pick)
        factories.append(factory)
    return Registries(PolicyRegistry(factories), defaults.resolvers, defaults.filters)


@frozen
class _ObservedFactory:
    """Factory of observed policies."""

    real: PolicyFactory
    on_config: OnConfig
    on_pick: OnPick

    @property
    def name(self) -> str:
        return self.real.name

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return self.real.parse_config(json, errors, registry)

    def create(self, helper: Helper) -> _ObservedPolicy:
        policy = self.real.create(_ObservedHelper(helper, self.on_pick))
        return _ObservedPolicy(policy, self.on_config)


class _ObservedPolicy:
    """Policy that reports the xDS config of each update."""

    def __init__(self, real: Policy, on_config: OnConfig) -> None:
        self._real = real
        self._on_config = on_config

    def update(self, update: Update) -> Status:
        config = update.attributes.get(XDS_CONFIG)
        if config is not None:
            children: Mapping[str, object] = getattr(update.config, "children", {})
            names = frozenset(name.removeprefix(CLUSTER_PREFIX) for name in children)
            self._on_config(config, names)
        return self._real.update(update)

    def exit_idle(self) -> None:
        self._real.exit_idle()

    def reset_backoff(self) -> None:
        self._real.reset_backoff()

    def close(self) -> None:
        self._real.close()


class _ObservedHelper(ForwardingHelper):
    """Helper that replaces each picker by an observed one."""

    __slots__ = ("_on_pick",)

    def __init__(self, parent: Helper, on_pick: OnPick) -> None:
        super().__init__(parent)
        self._on_pick = on_pick

    def update_state(self, state: State, picker: Picker) -> None:
        super().update_state(state, _ObservedPicker(picker, self._on_pick))


class _ObservedPicker(ForwardingPicker):
    """Picker that reports the result of each pick."""

    __slots__ = ("_on_pick",)

    def __init__(self, child: Picker, on_pick: OnPick) -> None:
        super().__init__(child)
        self._on_pick = on_pick

    def pick(self, info: PickInfo) -> PickResult:
        result = self._child.pick(info)
        self._on_pick(info, result)
        return result
