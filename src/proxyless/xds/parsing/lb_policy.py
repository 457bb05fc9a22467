"""Which of our LB policies does a cluster ask for, and with which config?

Specs: A52 (conversions), A42 (ring_hash), A48 (least_request), A58 and A114 (weighted_round_robin),
A62-25 to A62-29 (pick_first).

A cluster names its policy in a list of typed configs, the first known one of which counts, or in an
older enum. Either becomes a LoadBalancingConfig list in JSON with one entry, which has been parsed
once by the policies themselves: what is valid here builds a tree later.

A `Conversion` is the knowledge about one type. A policy of a user's own needs none: its config
comes as a TypedStruct, whose type is the policy's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.lb.config import parse_policy_list
from proxyless.lb.policies.pick_first.config import CONFIG_GUARD
from proxyless.xds.parsing.proto_fields import (
    Extension,
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
# One entry: the policy and its config.
LbConfig = list[Json]

WRR_LOCALITY: Final = "xds_wrr_locality_experimental"
RING_HASH: Final = "ring_hash_experimental"
LEAST_REQUEST: Final = "least_request_experimental"

# "Configurations that require more than 16 levels of recursion are considered invalid" - A52
LEVELS_MAX: Final = 16

RING_SIZE_LIMIT: Final = 8 * 1024 * 1024
RING_SIZE_MIN_DEFAULT: Final = 1024
CHOICE_COUNT_MIN: Final = 2

# ---------------------------------------------------------------------------------------------
# Conversions


# Converts a list inside a policy's config, such as the policy of each locality.
ConvertList = Callable[["Proto"], LbConfig]


@frozen
class Conversion:
    """How the typed config of one LB policy becomes the JSON config of one of ours."""

    # The full name of the typed config's message.
    type_name: str
    # The name under which our policy is registered. An entry for one that is not is skipped.
    policy: str
    # Makes the JSON config; errors are at the typed config's path.
    convert: Callable[[Proto, ValidationErrors, ConvertList], Json]
    # A variable of the environment that says "false" to have entries of this type skipped.
    guard: str = ""

    def is_enabled(self, environ: Mapping[str, str]) -> bool:
        """Whether the environment lets us use it now."""
        return not self.guard or environ.get(self.guard, "").strip().lower() != "false"


def _convert_nothing(_message: Proto, _errors: ValidationErrors, _convert: ConvertList) -> Json:
    """For policies without a config, or all of whose fields are ignored."""
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
    # Unset means XX_HASH, too.
    return parse_ring_hash(message, errors, (kind.DEFAULT_HASH, kind.XX_HASH))


# Field of the message -> field of the policy's config (A58).
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
            with errors.field("error_utilization_penalty"):
                errors.add(f"is {penalty:g}, wanted a number from 0")
        config["errorUtilizationPenalty"] = penalty
    if message.metric_names_for_computing_utilization:
        names = list(message.metric_names_for_computing_utilization)
        config["metricNamesForComputingUtilization"] = names
    return config


def _of(name: str, message: str) -> str:
    return f"envoy.extensions.load_balancing_policies.{name}.v3.{message}"


DEFAULT_CONVERSIONS: Final = (
    Conversion(_of("round_robin", "RoundRobin"), "round_robin", _convert_nothing),
    Conversion(_of("wrr_locality", "WrrLocality"), WRR_LOCALITY, _convert_wrr_locality),
    Conversion(_of("ring_hash", "RingHash"), RING_HASH, _convert_ring_hash),
    Conversion(_of("least_request", "LeastRequest"), LEAST_REQUEST, _convert_least_request),
    Conversion(_of("random", "Random"), "random", _convert_nothing),
    Conversion(_of("pick_first", "PickFirst"), "pick_first", _convert_pick_first, CONFIG_GUARD),
    Conversion(
        _of("client_side_weighted_round_robin", "ClientSideWeightedRoundRobin"),
        "weighted_round_robin",
        _convert_weighted_round_robin,
    ),
)

# ---------------------------------------------------------------------------------------------
# What the typed configs share with the older fields of a cluster


def parse_ring_hash(
    message: Proto, errors: ValidationErrors, hash_functions: Sequence[int]
) -> Json:
    """Sizes of a RingHash or a RingHashLbConfig, whose hash function must be one of these."""
    if message.hash_function not in hash_functions:
        with errors.field("hash_function"):
            errors.add(f"is {message.hash_function}, wanted XX_HASH")
    largest = _parse_ring_size(message, "maximum_ring_size", RING_SIZE_LIMIT, errors)
    smallest = _parse_ring_size(message, "minimum_ring_size", RING_SIZE_MIN_DEFAULT, errors)
    if smallest > largest:
        with errors.field("minimum_ring_size"):
            errors.add(f"is {smallest}, wanted at most maximum_ring_size, which is {largest}")
    return {"minRingSize": smallest, "maxRingSize": largest}


def _parse_ring_size(message: Proto, field: str, default: int, errors: ValidationErrors) -> int:
    size: int = getattr(message, field).value if message.HasField(field) else default
    if not 1 <= size <= RING_SIZE_LIMIT:
        with errors.field(field):
            errors.add(f"is {size}, wanted 1 to {RING_SIZE_LIMIT}")
        return default
    return size


def parse_least_request(message: Proto, errors: ValidationErrors) -> Json:
    """How many endpoints to compare, of a LeastRequest or a LeastRequestLbConfig (A48)."""
    count = read_uint32(message, "choice_count")
    if count is None:
        return {}
    if count < CHOICE_COUNT_MIN:
        with errors.field("choice_count"):
            errors.add(f"is {count}, wanted at least {CHOICE_COUNT_MIN}")
    return {"choiceCount": count}


def parse_duration_text(message: Proto, field: str, errors: ValidationErrors) -> str | None:
    """A Duration as JSON has it, to the nanosecond; None if the field is unset."""
    if read_duration_s(message, field, errors) is None:
        return None
    duration = getattr(message, field)
    fraction = f".{duration.nanos:09d}" if duration.nanos else ""
    return f"{duration.seconds}{fraction}s"


# ---------------------------------------------------------------------------------------------
# Conversion


class LbConfigConverter:
    """Turns what clusters say into JSON that `policies` can parse. Keeps nothing between clusters.

    The environment is read at each conversion, so that a process may change its mind.
    """

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
        """The policy of an envoy Cluster. Counts only if nothing was added to errors."""
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
        """Let the policies themselves say whether they can use it."""
        if errors.count != errors_before:
            return
        try:
            parse_policy_list(config, errors, self._policies)
        except Exception as error:  # A policy of a user's own must not end the ADS stream.
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
        """None: this client has no such policy, look at the next entry."""
        if not isinstance(extension.value, bytes):
            # "If the type name [...] does not correspond to a registered policy [...], this policy
            # is unsupported and should be skipped" - A52
            is_known = self._policies.find(extension.type_name) is not None
            return [{extension.type_name: dict(extension.value)}] if is_known else None
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
    """The policy in the older field lb_policy. Empty adds an error."""
    kind = type(cluster)
    match cluster.lb_policy:
        case kind.ROUND_ROBIN:
            return _in_each_locality({"round_robin": {}})
        case kind.LEAST_REQUEST:
            # "the locality-picking policy is weighted_target and the endpoint-picking policy is
            # least_request_experimental" - A48. C-core, which has no such policy, refuses it.
            with errors.field("least_request_lb_config"):
                config = parse_least_request(cluster.least_request_lb_config, errors)
            return _in_each_locality({LEAST_REQUEST: config})
        case kind.RING_HASH:
            # A ring spans the localities of a priority (A42).
            ring_hash = cluster.ring_hash_lb_config
            with errors.field("ring_hash_lb_config"):
                config = parse_ring_hash(ring_hash, errors, (type(ring_hash).XX_HASH,))
            return [{RING_HASH: config}]
        case other:
            with errors.field("lb_policy"):
                errors.add(f"is {_enum_name(cluster, other)}, which is not supported")
            return []


def _in_each_locality(policy: Json) -> LbConfig:
    return [{WRR_LOCALITY: {"childPolicy": [policy]}}]


def _enum_name(cluster: Proto, number: int) -> str:
    value = cluster.DESCRIPTOR.enum_types_by_name["LbPolicy"].values_by_number.get(number)
    return value.name if value is not None else str(number)
