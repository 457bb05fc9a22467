"""Converter of a cluster's LB policy to a LoadBalancingConfig list in JSON, with one entry.

Specs: A52 (conversions), A42 (ring_hash), A48 (least_request), A58, A100 and A114
(weighted_round_robin), A62-25 to A62-29 (pick_first).

A cluster configures its policy by a list of typed configs, of which the first supported one is
used, or by the older enum lb_policy. The result is validated by the policies' own parsers. A custom
policy needs no `Conversion`: its config is a TypedStruct whose type is the policy's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final

from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.lb.config import parse_policy_list
from proxyless.lb.policies.pick_first.config import CONFIG_GUARD
from proxyless.xds.parsing.proto_fields import (
    Extension,
    add_error,
    decode_extension,
    read_duration_s,
    read_uint32,
    unwrap_any,
)

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.lb import PolicyRegistry
    from proxyless.protos import Proto

Json = dict[str, object]
LbConfig = list[Json]

WRR_LOCALITY: Final = "xds_wrr_locality_experimental"
RING_HASH: Final = "ring_hash_experimental"
LEAST_REQUEST: Final = "least_request_experimental"

# "Configurations that require more than 16 levels of recursion are considered invalid" - A52
LEVELS_MAX: Final = 16

RING_SIZE_LIMIT: Final = 8 * 1024 * 1024
RING_SIZE_MIN_DEFAULT: Final = 1024
CHOICE_COUNT_MIN: Final = 2
PERCENT_MAX: Final = 100

# Conversions

# Converts a LoadBalancingPolicy inside a policy's config, such as the child policy.
ConvertList = Callable[["Proto"], LbConfig]


@frozen
class Conversion:
    """Conversion of one message type to the JSON config of a registered LB policy."""

    # The full name of the message type.
    type_name: str
    # Entries are skipped if no policy of this name is registered.
    policy: str
    convert: Callable[[Proto, ValidationErrors, ConvertList], Json]
    # Entries are skipped if this environment variable is "false".
    guard: str = ""

    def is_enabled(self, environ: Mapping[str, str]) -> bool:
        return not self.guard or read_flag(environ, self.guard, default=True)


def _convert_nothing(_message: Proto, _errors: ValidationErrors, _convert: ConvertList) -> Json:
    """For policies without a config, and those whose fields are all ignored."""
    return {}


def _convert_pick_first(message: Proto, _errors: ValidationErrors, _convert: ConvertList) -> Json:
    return {"shuffleAddressList": bool(message.shuffle_address_list)}


def _convert_wrr_locality(message: Proto, errors: ValidationErrors, convert: ConvertList) -> Json:
    with errors.field("endpoint_picking_policy"):
        if not message.HasField("endpoint_picking_policy"):
            errors.add("is missing")
            return {}
        return {"childPolicy": convert(message.endpoint_picking_policy)}


def _convert_least_request(message: Proto, errors: ValidationErrors, _convert: ConvertList) -> Json:
    return parse_least_request(message, errors)


def _convert_ring_hash(message: Proto, errors: ValidationErrors, _convert: ConvertList) -> Json:
    kind = type(message)
    return parse_ring_hash(message, errors, (kind.DEFAULT_HASH, kind.XX_HASH))


# From fields of the message to fields of the policy's config (A58).
_WRR_DURATIONS: Final = {
    "oob_reporting_period": "oobReportingPeriod",
    "blackout_period": "blackoutPeriod",
    "weight_expiration_period": "weightExpirationPeriod",
    "weight_update_period": "weightUpdatePeriod",
}


def _convert_weighted_round_robin(
    message: Proto, errors: ValidationErrors, _convert: ConvertList
) -> Json:
    config: Json = {}
    if message.enable_oob_load_report.value:
        config["enableOobLoadReport"] = True
    for field, name in _WRR_DURATIONS.items():
        if (text := parse_duration_text(message, field, errors)) is not None:
            config[name] = text
    if message.HasField("error_utilization_penalty"):
        penalty: float = message.error_utilization_penalty.value
        if not (isfinite(penalty) and penalty >= 0):
            text = f"is {penalty:g}, wanted a number from 0"
            add_error(errors, "error_utilization_penalty", text)
        config["errorUtilizationPenalty"] = penalty
    if message.metric_names_for_computing_utilization:
        names = list(message.metric_names_for_computing_utilization)
        config["metricNamesForComputingUtilization"] = names
    with errors.field("slow_start_config"):
        slow_start = _convert_slow_start(message.slow_start_config, errors)
    # As in Envoy, without a window there is no slow start.
    if slow_start["slowStartWindow"] not in (None, "0s"):
        config["slowStartConfig"] = slow_start
    return config


def _convert_slow_start(message: Proto, errors: ValidationErrors) -> Json:
    """The `slowStartConfig` of a SlowStartConfig (A100)."""
    config: Json = {"slowStartWindow": parse_duration_text(message, "slow_start_window", errors)}
    if message.HasField("aggression"):
        aggression: float = message.aggression.default_value
        if not (isfinite(aggression) and aggression > 0):
            add_error(errors, "aggression", f"is {aggression:g}, wanted a number above 0")
        config["aggression"] = aggression
    if message.HasField("min_weight_percent"):
        percent: float = message.min_weight_percent.value
        if not 0 <= percent <= PERCENT_MAX:
            add_error(errors, "min_weight_percent", f"is {percent:g}, wanted 0 to 100")
        config["minWeightPercent"] = percent
    return config


def _type_name(name: str, message: str) -> str:
    return f"envoy.extensions.load_balancing_policies.{name}.v3.{message}"


DEFAULT_CONVERSIONS: Final = (
    Conversion(_type_name("round_robin", "RoundRobin"), "round_robin", _convert_nothing),
    Conversion(_type_name("wrr_locality", "WrrLocality"), WRR_LOCALITY, _convert_wrr_locality),
    Conversion(_type_name("ring_hash", "RingHash"), RING_HASH, _convert_ring_hash),
    Conversion(_type_name("least_request", "LeastRequest"), LEAST_REQUEST, _convert_least_request),
    Conversion(_type_name("random", "Random"), "random", _convert_nothing),
    Conversion(
        _type_name("pick_first", "PickFirst"), "pick_first", _convert_pick_first, CONFIG_GUARD
    ),
    Conversion(
        _type_name("client_side_weighted_round_robin", "ClientSideWeightedRoundRobin"),
        "weighted_round_robin",
        _convert_weighted_round_robin,
    ),
)

# Parsers for the typed configs and for the older fields of a cluster


def parse_ring_hash(
    message: Proto, errors: ValidationErrors, hash_functions: Sequence[int]
) -> Json:
    """The config of a RingHash or a RingHashLbConfig with one of these hash functions."""
    if message.hash_function not in hash_functions:
        add_error(errors, "hash_function", f"is {message.hash_function}, wanted XX_HASH")
    largest = _parse_ring_size(message, "maximum_ring_size", RING_SIZE_LIMIT, errors)
    smallest = _parse_ring_size(message, "minimum_ring_size", RING_SIZE_MIN_DEFAULT, errors)
    if smallest > largest:
        text = f"is {smallest}, wanted at most maximum_ring_size, which is {largest}"
        add_error(errors, "minimum_ring_size", text)
    return {"minRingSize": smallest, "maxRingSize": largest}


def _parse_ring_size(message: Proto, field: str, default: int, errors: ValidationErrors) -> int:
    size: int = getattr(message, field).value if message.HasField(field) else default
    if not 1 <= size <= RING_SIZE_LIMIT:
        add_error(errors, field, f"is {size}, wanted 1 to {RING_SIZE_LIMIT}")
        return default
    return size


def parse_least_request(message: Proto, errors: ValidationErrors) -> Json:
    """The config of a LeastRequest or a LeastRequestLbConfig (A48)."""
    count = read_uint32(message, "choice_count")
    if count is None:
        return {}
    if count < CHOICE_COUNT_MIN:
        add_error(errors, "choice_count", f"is {count}, wanted at least {CHOICE_COUNT_MIN}")
    return {"choiceCount": count}


def parse_duration_text(message: Proto, field: str, errors: ValidationErrors) -> str | None:
    """A Duration in JSON, such as "1.5s", without loss; None if the field is unset."""
    if read_duration_s(message, field, errors) is None:
        return None
    duration = getattr(message, field)
    fraction = f".{duration.nanos:09d}" if duration.nanos else ""
    return f"{duration.seconds}{fraction}s"


class LbConfigConverter:
    """Converter of clusters' LB policies to JSON that `policies` can parse."""

    def __init__(
        self,
        policies: PolicyRegistry,
        conversions: Sequence[Conversion],
        environ: Mapping[str, str],
    ) -> None:
        self._policies = policies
        self._conversions = {conversion.type_name: conversion for conversion in conversions}
        self._environ = environ

    def convert_cluster(
        self, cluster: Proto, errors: ValidationErrors
    ) -> tuple[Mapping[str, object], ...]:
        """The policy of a Cluster message. The result is valid only if no error was added."""
        # "load_balancing_policy beats lb_policy" (A52-01)
        if cluster.HasField("load_balancing_policy"):
            with errors.field("load_balancing_policy"):
                return self.convert(cluster.load_balancing_policy, errors)
        errors_before = errors.count
        config = _convert_enum(cluster, errors)
        with errors.field("lb_policy"):
            self._check(config, errors, errors_before)
        return tuple(config)

    def convert(self, message: Proto, errors: ValidationErrors) -> tuple[Mapping[str, object], ...]:
        """The policy of a LoadBalancingPolicy message."""
        errors_before = errors.count
        config = self._convert_list(message, errors, 1)
        self._check(config, errors, errors_before)
        return tuple(config)

    def _check(self, config: LbConfig, errors: ValidationErrors, errors_before: int) -> None:
        """Validate the config by the policies' own parsers."""
        if errors.count != errors_before:
            return
        try:
            parse_policy_list(config, errors, self._policies)
        except Exception as error:  # A bug in a custom policy must not end the ADS stream.
            errors.add(f"its policy could not parse it: {error!r}")

    def _convert_list(self, message: Proto, errors: ValidationErrors, level: int) -> LbConfig:
        if level > LEVELS_MAX:
            errors.add(f"is more than {LEVELS_MAX} levels deep")
            return []
        skipped: list[str] = []
        for index, entry in enumerate(message.policies):
            with errors.field("policies"), errors.index(index):
                extension = _unwrap(entry, errors)
                if extension is None:
                    return []
                config = self._convert_entry(extension, errors, level)
            if config is not None:
                return config
            skipped.append(extension.type_name)
        errors.add(f"has no policy that is supported, got {', '.join(skipped) or 'an empty list'}")
        return []

    def _convert_entry(
        self, extension: Extension, errors: ValidationErrors, level: int
    ) -> LbConfig | None:
        """None if the policy is not supported, and the next entry is tried."""
        if not isinstance(extension.value, bytes):
            # "If the type name [...] does not correspond to a registered policy [...], this policy
            # is unsupported and should be skipped" - A52
            is_registered = self._policies.find(extension.type_name) is not None
            return [{extension.type_name: dict(extension.value)}] if is_registered else None
        conversion = self._conversions.get(extension.type_name)
        if (
            conversion is None
            or self._policies.find(conversion.policy) is None
            or not conversion.is_enabled(self._environ)
        ):
            return None
        with errors.field("typed_extension_config.typed_config"):
            message = decode_extension(extension, errors)
            if message is None:
                return []
            with errors.key(extension.type_name):
                config = conversion.convert(
                    message, errors, lambda nested: self._convert_list(nested, errors, level + 1)
                )
        return [{conversion.policy: config}]


def _unwrap(entry: Proto, errors: ValidationErrors) -> Extension | None:
    with errors.field("typed_extension_config"):
        if not entry.HasField("typed_extension_config"):
            errors.add("is missing")
            return None
        with errors.field("typed_config"):
            return unwrap_any(entry.typed_extension_config.typed_config, errors)


def _convert_enum(cluster: Proto, errors: ValidationErrors) -> LbConfig:
    """The policy of the older field lb_policy. An empty list adds an error."""
    kind = type(cluster)
    match cluster.lb_policy:
        case kind.ROUND_ROBIN:
            return _in_each_locality({"round_robin": {}})
        case kind.LEAST_REQUEST:
            # "the locality-picking policy is weighted_target and the endpoint-picking policy is
            # least_request_experimental" - A48. C-core has no such policy and rejects the cluster.
            with errors.field("least_request_lb_config"):
                config = parse_least_request(cluster.least_request_lb_config, errors)
            return _in_each_locality({LEAST_REQUEST: config})
        case kind.RING_HASH:
            # One ring has all localities of a priority (A42).
            ring_hash = cluster.ring_hash_lb_config
            with errors.field("ring_hash_lb_config"):
                config = parse_ring_hash(ring_hash, errors, (type(ring_hash).XX_HASH,))
            return [{RING_HASH: config}]
        case other:
            got = name_enum_value(cluster, "LbPolicy", other)
            add_error(errors, "lb_policy", f"is {got}, which is not supported")
            return []


def _in_each_locality(policy: Json) -> LbConfig:
    return [{WRR_LOCALITY: {"childPolicy": [policy]}}]


def name_enum_value(message: Proto, enum: str, number: int) -> str:
    """The name of a value of a nested enum; the number if it has no name."""
    value = message.DESCRIPTOR.enum_types_by_name[enum].values_by_number.get(number)
    return value.name if value is not None else str(number)
