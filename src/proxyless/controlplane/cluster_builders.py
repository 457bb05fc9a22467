"""Builders for clusters: outlier detection, circuit breaker, LB policy and TLS.

Each function sets fields of a cluster and returns the same cluster:

    circuit_breaker(ring_hash(eds_cluster("cart")), max_requests=100)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane.builders import pack, set_duration
from proxyless.controlplane.route_builders import set_string_match
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLICIES: Final = "envoy.extensions.load_balancing_policies"
_POLICY_TYPES: Final = {
    "pick_first": f"{_POLICIES}.pick_first.v3.PickFirst",
    "random": f"{_POLICIES}.random.v3.Random",
    "weighted_round_robin": (
        f"{_POLICIES}.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
    ),
}
_WRR_LOCALITY: Final = f"{_POLICIES}.wrr_locality.v3.WrrLocality"
_TLS: Final = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_SYSTEM: Final = "system"
_ALWAYS: Final = 100


@frozen
class FailurePercentage:
    """Ejection of endpoints of which at least `threshold` percent of the RPCs fail (A50).

    None: Envoy's default.
    """

    threshold: int | None = None
    minimum_hosts: int | None = None
    request_volume: int | None = None
    enforcing: int = _ALWAYS


@frozen
class SuccessRate:
    """Ejection of endpoints with a success rate far below the mean (A50).

    `stdev_factor` is in thousandths of a standard deviation. None: Envoy's default.
    """

    stdev_factor: int | None = None
    minimum_hosts: int | None = None
    request_volume: int | None = None
    enforcing: int = _ALWAYS


@frozen
class Ejection:
    """Duration of an ejection, which grows with each one, and its limits. None: Envoy's default."""

    time_s: float | None = None
    max_time_s: float | None = None
    max_percent: int | None = None


def outlier_detection(
    cluster: Proto,
    *,
    failure_percentage: FailurePercentage | None = None,
    success_rate: SuccessRate | None = None,
    interval_s: float | None = None,
    ejection: Ejection | None = None,
) -> Proto:
    """Eject endpoints that fail more than others, by the given algorithms.

    Without any, Envoy's default counts, which is the success rate.
    """
    result = cluster.outlier_detection
    result.SetInParent()
    if interval_s is not None:
        set_duration(result.interval, interval_s)
    if ejection is not None:
        _set_ejection(result, ejection)
    if success_rate is not None:
        fields = ("minimum_hosts", "request_volume", "stdev_factor")
        _set_values(result, "success_rate", success_rate, fields)
        result.enforcing_success_rate.value = success_rate.enforcing
    elif failure_percentage is not None:
        # Otherwise it would be 100.
        result.enforcing_success_rate.value = 0
    if failure_percentage is not None:
        fields = ("threshold", "minimum_hosts", "request_volume")
        _set_values(result, "failure_percentage", failure_percentage, fields)
        result.enforcing_failure_percentage.value = failure_percentage.enforcing
    return cluster


def _set_ejection(result: Proto, ejection: Ejection) -> None:
    if ejection.time_s is not None:
        set_duration(result.base_ejection_time, ejection.time_s)
    if ejection.max_time_s is not None:
        set_duration(result.max_ejection_time, ejection.max_time_s)
    if ejection.max_percent is not None:
        result.max_ejection_percent.value = ejection.max_percent


def _set_values(result: Proto, prefix: str, source: object, fields: Sequence[str]) -> None:
    for field in fields:
        value = getattr(source, field)
        if value is not None:
            getattr(result, f"{prefix}_{field}").value = value


def circuit_breaker(cluster: Proto, max_requests: int) -> Proto:
    """Fail RPCs while this many others are in flight."""
    cluster.circuit_breakers.thresholds.add().max_requests.value = max_requests
    return cluster


def ring_hash(cluster: Proto, *, min_size: int | None = None, max_size: int | None = None) -> Proto:
    """Choose endpoints by consistent hashing; see `hash_on` for what is hashed."""
    cluster.lb_policy = cluster.RING_HASH
    if min_size is not None:
        cluster.ring_hash_lb_config.minimum_ring_size.value = min_size
    if max_size is not None:
        cluster.ring_hash_lb_config.maximum_ring_size.value = max_size
    return cluster


def least_request(cluster: Proto, *, choices: int | None = None) -> Proto:
    """Choose the endpoint with the fewest RPCs in flight of a few random ones."""
    cluster.lb_policy = cluster.LEAST_REQUEST
    if choices is not None:
        cluster.least_request_lb_config.choice_count.value = choices
    return cluster


def lb_policy(cluster: Proto, name: str) -> Proto:
    """Use `pick_first`, `random` or `weighted_round_robin` for the endpoints of each locality."""
    child = message_class(_POLICY_TYPES[name])()
    locality = message_class(_WRR_LOCALITY)()
    _add_policy(locality.endpoint_picking_policy, name, child)
    _add_policy(cluster.load_balancing_policy, "wrr_locality", locality)
    return cluster


def _add_policy(policies: Proto, name: str, config: Proto) -> None:
    extension = policies.policies.add().typed_extension_config
    extension.name = name
    pack(config, extension.typed_config)


def tls(
    cluster: Proto,
    roots: str,
    *,
    certificate: str = "",
    names: Sequence[str | tuple[str, str]] = (),
    sni: str = "",
) -> Proto:
    """Use TLS to the endpoints, if the channel has `xds_channel_credentials`.

    `roots` and `certificate` are names of certificate providers of the bootstrap; the roots may be
    `system`. The server's certificate must have one of the `names`: a whole name, or a kind of
    matcher and its value.
    """
    context = message_class(_TLS)(sni=sni)
    common = context.common_tls_context
    if roots == _SYSTEM:
        common.validation_context.system_root_certs.SetInParent()
    else:
        common.validation_context.ca_certificate_provider_instance.instance_name = roots
    for each in names:
        kind, value = ("exact", each) if isinstance(each, str) else each
        set_string_match(common.validation_context.match_subject_alt_names.add(), kind, value)
    if certificate:
        common.tls_certificate_provider_instance.instance_name = certificate
    cluster.transport_socket.name = "envoy.transport_sockets.tls"
    pack(context, cluster.transport_socket.typed_config)
    return cluster
