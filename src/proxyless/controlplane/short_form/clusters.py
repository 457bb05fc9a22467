"""Clusters of the short form: a cluster and its endpoints, made with the builders.

The document was checked against the schema; addresses are checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.base import parse_address
from proxyless.controlplane.builders import (
    Locality,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
)
from proxyless.controlplane.cluster_builders import (
    Ejection,
    FailurePercentage,
    SuccessRate,
    circuit_breaker,
    lb_policy,
    least_request,
    outlier_detection,
    ring_hash,
    tls,
)
from proxyless.controlplane.short_form.routes import to_seconds, to_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto


def expand_cluster(name: str, given: Mapping[str, Any], errors: ValidationErrors) -> Proto | None:
    """The cluster; None adds an error."""
    cluster = _make_cluster(name, given, errors)
    if cluster is None:
        return None
    if "policy" in given:
        _set_policy(cluster, given["policy"])
    if "outlier_detection" in given:
        _set_outlier_detection(cluster, given["outlier_detection"])
    if "circuit_breaker" in given:
        circuit_breaker(cluster, given["circuit_breaker"]["max_requests"])
    if "session" in given:
        _set_session(cluster, given["session"])
    if "tls" in given:
        _set_tls(cluster, given["tls"])
    return cluster


def _make_cluster(name: str, given: Mapping[str, Any], errors: ValidationErrors) -> Proto | None:
    if "aggregate" in given:
        return aggregate_cluster(name, given["aggregate"])
    if "dns" not in given:
        return eds_cluster(name, given.get("eds"))
    host, _, port = given["dns"].rpartition(":")
    if int(port) > 65_535:  # noqa: PLR2004 - the largest port
        with errors.field("dns"):
            errors.add(f"is {given['dns']!r:.80}, wanted a port up to 65535")
        return None
    return dns_cluster(name, host.strip("[]"), int(port))


def _set_policy(cluster: Proto, policy: str | Mapping[str, Any]) -> None:
    name, options = (policy, {}) if isinstance(policy, str) else next(iter(policy.items()))
    match name:
        case "round_robin":
            pass
        case "ring_hash":
            ring_hash(cluster, **options)
        case "least_request":
            least_request(cluster, **options)
        case _:
            lb_policy(cluster, name)


def _set_outlier_detection(cluster: Proto, given: Mapping[str, Any]) -> None:
    failures, successes = given.get("failure_percentage"), given.get("success_rate")
    ejection = given.get("ejection")
    outlier_detection(
        cluster,
        failure_percentage=None if failures is None else FailurePercentage(**failures),
        success_rate=None if successes is None else SuccessRate(**successes),
        interval_s=to_seconds(given["interval"]) if "interval" in given else None,
        ejection=None if ejection is None else _make_ejection(ejection),
    )


def _make_ejection(given: Mapping[str, Any]) -> Ejection:
    return Ejection(
        time_s=to_seconds(given["time"]) if "time" in given else None,
        max_time_s=to_seconds(given["max_time"]) if "max_time" in given else None,
        max_percent=given.get("max_percent"),
    )


def _set_session(cluster: Proto, given: Mapping[str, Any]) -> None:
    keep_on = given.get("keep_on", ("UNKNOWN", "HEALTHY", "DRAINING"))
    timeout = given.get("idle_timeout")
    idle_timeout_s = None if timeout is None else to_seconds(timeout)
    keep_sessions(cluster, keep_on, idle_timeout_s=idle_timeout_s)


def _set_tls(cluster: Proto, given: Mapping[str, Any]) -> None:
    names = [
        each if isinstance(each, str) else next(iter(each.items()))
        for each in given.get("names", ())
    ]
    certificate, sni = given.get("certificate", ""), given.get("sni", "")
    tls(cluster, given["roots"], certificate=certificate, names=names, sni=sni)


# Endpoints


def expand_endpoints(name: str, given: Mapping[str, Any], errors: ValidationErrors) -> Proto | None:
    """The endpoints of a cluster that lists them; None adds an error."""
    count = errors.count
    with errors.field("endpoints"):
        by_locality = _group(given["endpoints"], errors)
    if errors.count > count:
        return None
    drops = {category: to_share(share) for category, share in given.get("drops", {}).items()}
    return endpoints(given.get("eds", name), by_locality, drops=drops)


def _group(
    items: Sequence[Any], errors: ValidationErrors
) -> dict[int | Locality, Sequence[str | Proto]]:
    """Endpoints by locality. Addresses without zones are one locality, as in `endpoints`."""
    zones = [each for each in items if isinstance(each, dict)]
    if not zones:
        return {0: [found for found in _read_list(items, errors) if found is not None]}
    if len(zones) < len(items):
        errors.add("has addresses beside zones, wanted one kind")
        return {}
    found: dict[int | Locality, Sequence[str | Proto]] = {}
    for number, zone in enumerate(zones):
        with errors.index(number):
            places = {key: value for key, value in zone.items() if key != "addresses"}
            locality = Locality(**places)
            if locality in found:
                errors.add("is the same locality as one before it, wanted one list of addresses")
            with errors.field("addresses"):
                read = _read_list(zone["addresses"], errors)
            found[locality] = [each for each in read if each is not None]
    return found


def _read_list(items: Sequence[Any], errors: ValidationErrors) -> list[str | Proto | None]:
    found = []
    for number, item in enumerate(items):
        with errors.index(number):
            found.append(_read_endpoint(item, errors))
    return found


def _read_endpoint(item: str | Mapping[str, Any], errors: ValidationErrors) -> str | Proto | None:
    address = item if isinstance(item, str) else item["address"]
    try:
        parse_address(address)
    except ValueError as error:
        errors.add(str(error))
        return None
    if isinstance(item, str):
        return item
    options = {key: value for key, value in item.items() if key != "address"}
    return lb_endpoint(address, **options)
