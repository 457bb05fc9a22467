"""Which policies does a cluster have, from the top down?

Specs: A75-01, A75-03, A75-08, A37-04.

A cluster of its own: outlier_detection > xds_cluster_impl > xds_override_host > priority > the
cluster's LB policy for each priority. An aggregate: priority > a cds for each leaf, in order.

What is made of both is what parsing the same policies in JSON would make. Only the part that came
as JSON is parsed: a mesh may have a thousand clusters, and all the rest is the same for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.base.frozen import frozen
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig
from proxyless.lb.policies.outlier_detection.config import parse_rules
from proxyless.lb.policies.priority import ChildConfig, PriorityConfig
from proxyless.xds.lb.cluster_impl.policy import ClusterImplConfig
from proxyless.xds.lb.override_host.policy import OverrideHostConfig

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.lb import PolicyRegistry
    from proxyless.xds.resources import OutlierDetection


@frozen
class LeafPolicies:
    """Those of a cluster of its own."""

    cluster: str
    # The children of the priority policy, the highest priority first.
    priorities: tuple[str, ...]
    # The cluster's LB policy, in JSON.
    lb_config: tuple[Any, ...]
    outlier_detection: OutlierDetection | None
    # "true for EDS priorities, false for DNS" (A37-04)
    ignore_reresolution_requests: bool

    def configure(self, errors: ValidationErrors, registry: PolicyRegistry) -> PolicyConfig | None:
        """The policy at the top. None, if errors says what is wrong."""
        own = parse_policy_list(list(self.lb_config), errors, registry)
        if own is None:
            return None
        child = ChildConfig(own, self.ignore_reresolution_requests)
        priority = PriorityConfig(dict.fromkeys(self.priorities, child), self.priorities)
        policy = _known("priority_experimental", priority, errors, registry)
        override_host = OverrideHostConfig(self.cluster, policy)
        policy = _known("xds_override_host_experimental", override_host, errors, registry)
        cluster_impl = ClusterImplConfig(self.cluster, policy)
        policy = _known("xds_cluster_impl_experimental", cluster_impl, errors, registry)
        return None if policy is None else self._watch_outliers(policy, errors, registry)

    def _watch_outliers(
        self, policy: PolicyConfig, errors: ValidationErrors, registry: PolicyRegistry
    ) -> PolicyConfig | None:
        config = OutlierDetectionConfig(child=policy)
        if self.outlier_detection is not None:
            interval_s, rules = parse_rules(self.outlier_detection.config, errors)
            config = OutlierDetectionConfig(child=policy, interval_s=interval_s, rules=rules)
        return _known("outlier_detection_experimental", config, errors, registry)


@frozen
class AggregatePolicies:
    """Those of an aggregate: its leaves, the preferred one first (A75-01)."""

    # With the priorities of each: a leaf may try all of them before the next one is used (A75-08).
    leaves: tuple[tuple[str, int], ...]

    def configure(self, errors: ValidationErrors, registry: PolicyRegistry) -> PolicyConfig | None:
        """The policy at the top. None, if errors says what is wrong."""
        children: dict[str, ChildConfig] = {}
        for name, inner_priorities in self.leaves:
            json = [{"cds_experimental": {"cluster": name}}]
            leaf = parse_policy_list(json, errors, registry)
            if leaf is None:
                return None
            children[name] = ChildConfig(leaf, inner_priorities=inner_priorities)
        config = PriorityConfig(children, tuple(children))
        return _known("priority_experimental", config, errors, registry)


def _known(
    name: str, config: object, errors: ValidationErrors, registry: PolicyRegistry
) -> PolicyConfig | None:
    """A policy of that name, as a list that names only it would have it."""
    factory = registry.find(name)
    if factory is None:
        errors.add(f"No known policies in list: {name}")
        return None
    return PolicyConfig(factory, config)
