"""Unit tests of proxyless.controlplane.cluster_builders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.assembly import Registries
from proxyless.base import ValidationErrors
from proxyless.controlplane import (
    Ejection,
    FailurePercentage,
    SuccessRate,
    circuit_breaker,
    eds_cluster,
    lb_policy,
    least_request,
    outlier_detection,
    ring_hash,
    tls,
)
from proxyless.observe import unknown_bootstrap
from proxyless.xds.view import message_parsers
from tests.worlds.lint import lint_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.protos import Proto
    from proxyless.xds.resources import Cluster


def parse(message: Proto) -> Cluster:
    """The cluster as the client parses it."""
    known, errors = Registries(), ValidationErrors()
    parsers = message_parsers(known.policies, known.filters, unknown_bootstrap())
    parsed = parsers[message.DESCRIPTOR.full_name](message, errors)
    assert errors.ok, str(errors)
    return parsed  # type: ignore[return-value]


def test_only_the_given_algorithm_of_outlier_detection_is_on() -> None:
    failures = outlier_detection(eds_cluster("a"), failure_percentage=FailurePercentage())
    successes = outlier_detection(eds_cluster("a"), success_rate=SuccessRate())
    neither = outlier_detection(eds_cluster("a"))
    found = [_algorithms(each) for each in (failures, successes, neither)]
    assert found == [(False, True), (True, False), (True, False)]


def _algorithms(message: Proto) -> tuple[bool, bool]:
    detection = message.outlier_detection
    success = detection.enforcing_success_rate
    is_on = success.value > 0 if detection.HasField("enforcing_success_rate") else True
    return is_on, detection.enforcing_failure_percentage.value > 0


def test_values_of_outlier_detection_are_set() -> None:
    cluster = outlier_detection(
        eds_cluster("a"),
        failure_percentage=FailurePercentage(50, 2, 10, 90),
        success_rate=SuccessRate(1500, 3, 20, 80),
        interval_s=5.0,
        ejection=Ejection(10.0, 60.0, 40),
    )
    detection = cluster.outlier_detection
    assert detection.interval.seconds == 5
    assert detection.base_ejection_time.seconds == 10
    assert detection.max_ejection_time.seconds == 60
    assert detection.max_ejection_percent.value == 40
    assert detection.failure_percentage_threshold.value == 50
    assert detection.failure_percentage_minimum_hosts.value == 2
    assert detection.failure_percentage_request_volume.value == 10
    assert detection.enforcing_failure_percentage.value == 90
    assert detection.success_rate_stdev_factor.value == 1500
    assert detection.success_rate_minimum_hosts.value == 3
    assert detection.success_rate_request_volume.value == 20
    assert detection.enforcing_success_rate.value == 80
    assert lint_errors([cluster]) == []


@pytest.mark.parametrize(
    ("change", "policy"),
    [
        (lambda cluster: ring_hash(cluster, min_size=8, max_size=64), "ring_hash_experimental"),
        (lambda cluster: least_request(cluster, choices=3), "least_request_experimental"),
        (lambda cluster: lb_policy(cluster, "pick_first"), "pick_first"),
        (lambda cluster: lb_policy(cluster, "random"), "random"),
        (lambda cluster: lb_policy(cluster, "weighted_round_robin"), "weighted_round_robin"),
    ],
)
def test_policy_is_the_one_that_the_client_parses(
    change: Callable[[Proto], Proto], policy: str
) -> None:
    assert policy in str(parse(change(eds_cluster("a"))).lb_config)


def test_circuit_breaker_has_the_limit() -> None:
    assert parse(circuit_breaker(eds_cluster("a"), 7)).max_concurrent_requests == 7


def test_tls_has_roots_certificate_names_and_sni() -> None:
    names: list[str | tuple[str, str]] = ["a.example", ("suffix", ".example")]
    parsed = parse(
        tls(eds_cluster("a"), "roots", certificate="own", names=names, sni="s.example")
    ).tls
    assert parsed is not None
    assert parsed.ca is not None
    assert parsed.identity is not None
    assert (parsed.ca.instance_name, parsed.identity.instance_name) == ("roots", "own")
    assert len(parsed.san_matchers) == 2
    assert parsed.sni == "s.example"


def test_tls_may_use_the_roots_of_the_system() -> None:
    parsed = parse(tls(eds_cluster("a"), "system", names=["a.example"])).tls
    assert parsed is not None
    assert parsed.ca is None
