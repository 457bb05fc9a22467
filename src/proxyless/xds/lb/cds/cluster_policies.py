"""Configs of the policies below a cds policy.

Specs: A75-01, A75-03, A75-08, A37-04.

A leaf cluster has outlier_detection > xds_cluster_impl > xds_override_host > priority > the
cluster's LB policy for each priority. An aggregate has priority > a cds policy for each leaf.

The result is the same as parsing these policies from JSON, but only the part that the control plane
sent is parsed: a mesh may have a thousand clusters, and the rest is the same for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig
from proxyless.lb.policies.outlier_detection.config import parse_rules
from proxyless.lb.policies.priority import PriorityChildConfig, PriorityConfig
from proxyless.xds.lb.cluster_impl.policy import ClusterImplConfig
from proxyless.xds.lb.override_host.policy import OverrideHostConfig

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.lb import PolicyRegistry
    from proxyless.xds.resources import LbConfig, OutlierDetection


@frozen
class LeafPolicies:
    """Policies of a cluster that is not an aggregate."""

    cluster: str
    # The children of the priority policy, the highest priority first.
    priorities: tuple[str, ...]
    lb_config: LbConfig
    outlier_detection: OutlierDetection | None
    # "true for EDS priorities, false for DNS" (A37-04)
    ignore_reresolution_requests: bool

    def configure(self, errors: ValidationErrors, registry: PolicyRegistry) -> PolicyConfig | None:
        """The topmost policy. None adds an error."""
        own = parse_policy_list(list(self.lb_config.json), errors, registry)
        if own is None:
            return None
        child = PriorityChildConfig(own, self.ignore_reresolution_requests)
        priority = PriorityConfig(dict.fromkeys(self.priorities, child), self.priorities)
        policy = _find_policy("priority_experimental", priority, errors, registry)
        override_host = OverrideHostConfig(self.cluster, policy, self.lb_config.reads_config)
        policy = _find_policy("xds_override_host_experimental", override_host, errors, registry)
        cluster_impl = ClusterImplConfig(self.cluster, policy)
        policy = _find_policy("xds_cluster_impl_experimental", cluster_impl, errors, registry)
        if policy is None:
            return None
        outlier_detection = OutlierDetectionConfig(child=policy)
        if self.outlier_detection is not None:
            interval_s, rules = parse_rules(self.outlier_detection.config, errors)
            outlier_detection = replace(outlier_detection, interval_s=interval_s, rules=rules)
        return _find_policy("outlier_detection_experimental", outlier_detection, errors, registry)


@frozen
class AggregatePolicies:
    """Policies of an aggregate: its leaves, the preferred one first (A75-01)."""

    # Name and number of priorities: a leaf may try all of its own before the next leaf (A75-08).
    leaves: tuple[tuple[str, int], ...]

    def configure(self, errors: ValidationErrors, registry: PolicyRegistry) -> PolicyConfig | None:
        """The topmost policy. None adds an error."""
        children: dict[str, PriorityChildConfig] = {}
        for name, inner_priorities in self.leaves:
            leaf = parse_policy_list([{"cds_experimental": {"cluster": name}}], errors, registry)
            if leaf is None:
                return None
            children[name] = PriorityChildConfig(leaf, inner_priorities=inner_priorities)
        config = PriorityConfig(children, tuple(children))
        return _find_policy("priority_experimental", config, errors, registry)


def _find_policy(
    name: str, config: object, errors: ValidationErrors, registry: PolicyRegistry
) -> PolicyConfig | None:
    """The registered policy of that name. None adds the error of `parse_policy_list`."""
    factory = registry.find(name)
    if factory is None:
        errors.add(f"No known policies in list: {name}")
        return None
    return PolicyConfig(factory, config)
