"""Service config: the settings that a service's owner publishes for its clients.

Specs: A2 and A21 (service configs), A6 (retries, hedging), A24 (LoadBalancingConfig), A105
(connection scaling); the fields are those of grpc.service_config.ServiceConfig, in JSON.

A config is used as a whole or not at all. Every known field is validated, and all errors are
reported at once; unknown fields are ignored, so that a config may be newer than its clients.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxyless.base import StatusCode, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import (
    BOOLEAN,
    DURATION,
    POSITIVE_DURATION,
    TEXT,
    UINT32_MAX,
    FieldKind,
    JsonObject,
    integer,
    to_integer,
    to_number,
)
from proxyless.lb import PolicyConfig, PolicyRegistry, parse_policy_list
from proxyless.lb.connection_limit import SERVICE_CONFIG_GUARD, is_scaling_enabled

# "Values greater than 5 are treated as 5 without being considered a validation error" - A6
ATTEMPTS_MAX: Final = 5
DEFAULT_POLICY: Final = "pick_first"
TOKENS_MAX: Final = 1000
# A6 counts tokens with three decimal places, so we count thousandths.
MILLITOKENS: Final = 1000

# Status codes of failures.
_CODES_BY_NAME: Final = {code.name: code for code in StatusCode if code is not StatusCode.OK}
_CODES_BY_NUMBER: Final = {int(code): code for code in _CODES_BY_NAME.values()}


@frozen(kw_only=True)
class RetryPolicy:
    """Retry after a failure with one of these codes."""

    attempts_max: int
    initial_backoff_s: float
    max_backoff_s: float
    backoff_multiplier: float
    retryable_codes: frozenset[StatusCode]
    per_attempt_recv_timeout_s: float | None = None


@frozen(kw_only=True)
class HedgingPolicy:
    """Send further attempts before there is a response; these codes do not end the RPC."""

    attempts_max: int
    hedging_delay_s: float = 0.0
    non_fatal_codes: frozenset[StatusCode] = frozenset()


@frozen
class RetryThrottling:
    """Tokens of the throttle, in thousandths."""

    max_millitokens: int
    millitoken_ratio: int


@frozen(kw_only=True)
class MethodConfig:
    """The settings of an RPC. None is unset: then the application or a default decides."""

    wait_for_ready: bool | None = None
    timeout_s: float | None = None
    request_bytes_max: int | None = None
    response_bytes_max: int | None = None
    # At most one of the two.
    retry_policy: RetryPolicy | None = None
    hedging_policy: HedgingPolicy | None = None
    # Origin of the timeout, for error texts, if no config has it.
    timeout_note: str = ""
    # Derived: every field is unset; messages have limits; more than one attempt may be made.
    # Read by every RPC.
    is_plain: bool = field(init=False)
    has_size_limits: bool = field(init=False)
    has_policy: bool = field(init=False)

    def __post_init__(self) -> None:
        fields = (
            self.wait_for_ready,
            self.timeout_s,
            self.request_bytes_max,
            self.response_bytes_max,
            self.retry_policy,
            self.hedging_policy,
        )
        object.__setattr__(self, "is_plain", fields == (None,) * len(fields))
        has_size_limits = (self.request_bytes_max, self.response_bytes_max) != (None, None)
        object.__setattr__(self, "has_size_limits", has_size_limits)
        has_policy = self.retry_policy is not None or self.hedging_policy is not None
        object.__setattr__(self, "has_policy", has_policy)


EMPTY_METHOD_CONFIG: Final = MethodConfig()


@frozen(kw_only=True)
class ServiceConfig:
    """A whole config."""

    # The default policy if the config names none; None only if there are validation errors.
    policy: PolicyConfig | None
    # By "/service/method", "/service/" (all its methods) and "" (all methods).
    methods: Mapping[str, MethodConfig] = field(default_factory=dict)
    retry_throttling: RetryThrottling | None = None
    # None if unset; the empty name is the health of the whole server.
    health_check_service: str | None = None
    # Maximum number of connections of each subchannel (A105).
    connections_max: int = 1

    def method_config(self, path: str) -> MethodConfig:
        """The settings of the most specific entry. Entries are not merged."""
        methods = self.methods
        config = methods.get(path)
        if config is None:
            config = methods.get(path[: path.rfind("/") + 1])
        if config is None:
            config = methods.get("", EMPTY_METHOD_CONFIG)
        return config


def parse_service_config(
    document: object, errors: ValidationErrors, registry: PolicyRegistry
) -> ServiceConfig:
    """The config of a JSON value. Valid only if no errors were added."""
    root = JsonObject(document, errors)
    return ServiceConfig(
        policy=_parse_policy(root, registry),
        methods=_parse_methods(root),
        retry_throttling=root.nested("retryThrottling", _parse_throttling),
        health_check_service=root.nested(
            "healthCheckConfig", lambda health_check: health_check.read("serviceName", TEXT)
        ),
        connections_max=_parse_connections_max(root),
    )


def _parse_policy(root: JsonObject, registry: PolicyRegistry) -> PolicyConfig | None:
    """The policy of `loadBalancingConfig`, or of the older field, which is always validated."""
    older, listed = root.read("loadBalancingPolicy", TEXT), root.get("loadBalancingConfig")
    named: PolicyConfig | None = None
    if older or listed is None:
        # grpcio also takes upper case in the older field: "ROUND_ROBIN".
        name = (older or DEFAULT_POLICY).lower()
        with root.errors.field("loadBalancingPolicy"):
            named = parse_policy_list([{name: {}}], root.errors, registry)
    if listed is None:
        return named
    with root.errors.field("loadBalancingConfig"):
        return parse_policy_list(listed, root.errors, registry)


def _parse_connections_max(root: JsonObject) -> int:
    """The maximum of `connectionScaling`; 0 is unset. Ignored unless the environment enables it."""
    if not is_scaling_enabled(os.environ, SERVICE_CONFIG_GUARD):
        return 1
    kind = integer(0, UINT32_MAX)
    scaling = root.nested(
        "connectionScaling", lambda fields: fields.read("maxConnectionsPerSubchannel", kind)
    )
    return scaling or 1


def _parse_methods(root: JsonObject) -> dict[str, MethodConfig]:
    methods: dict[str, MethodConfig] = {}
    for entry in root.objects("methodConfig"):
        # An entry without a name applies to no method, but has to be valid.
        config = _parse_method(entry)
        for name in entry.objects("name"):
            path = _parse_name(name)
            if path in methods:
                # "Each name entry must be unique across the entire ServiceConfig"
                name.errors.add(f"names {path or 'every method'} a second time")
            methods[path] = config
    return methods


def _parse_name(name: JsonObject) -> str:
    # "value "", value `null`, and not present are the same"
    service, method = name.read("service", TEXT), name.read("method", TEXT)
    if method and not service:
        name.errors.add(f"has method {method!r} without a service")
    return f"/{service}/{method or ''}" if service else ""


def _parse_method(entry: JsonObject) -> MethodConfig:
    if entry.get("retryPolicy") is not None and entry.get("hedgingPolicy") is not None:
        entry.errors.add("has retryPolicy and hedgingPolicy, wanted one of them")
    return MethodConfig(
        wait_for_ready=entry.read("waitForReady", BOOLEAN),
        timeout_s=entry.read("timeout", DURATION),
        request_bytes_max=entry.read("maxRequestMessageBytes", integer(0, UINT32_MAX)),
        response_bytes_max=entry.read("maxResponseMessageBytes", integer(0, UINT32_MAX)),
        retry_policy=entry.nested("retryPolicy", _parse_retry),
        hedging_policy=entry.nested("hedgingPolicy", _parse_hedging),
    )


def _parse_retry(policy: JsonObject) -> RetryPolicy:
    return RetryPolicy(
        attempts_max=_parse_attempts(policy),
        initial_backoff_s=policy.need("initialBackoff", POSITIVE_DURATION) or 0.0,
        max_backoff_s=policy.need("maxBackoff", POSITIVE_DURATION) or 0.0,
        backoff_multiplier=policy.need("backoffMultiplier", _POSITIVE_NUMBER) or 0.0,
        retryable_codes=_parse_retryable_codes(policy),
        # Not in A6, but grpcio validates it.
        per_attempt_recv_timeout_s=policy.read("perAttemptRecvTimeout", POSITIVE_DURATION),
    )


def _parse_hedging(policy: JsonObject) -> HedgingPolicy:
    return HedgingPolicy(
        attempts_max=_parse_attempts(policy),
        hedging_delay_s=policy.read("hedgingDelay", DURATION) or 0.0,
        non_fatal_codes=frozenset(policy.elements("nonFatalStatusCodes", _CODE)),
    )


def _parse_attempts(policy: JsonObject) -> int:
    return min(policy.need("maxAttempts", integer(2, UINT32_MAX)) or 0, ATTEMPTS_MAX)


def _parse_retryable_codes(policy: JsonObject) -> frozenset[StatusCode]:
    if policy.get("retryableStatusCodes") in (None, []):
        with policy.errors.field("retryableStatusCodes"):
            policy.errors.add("is missing or empty, wanted a list of status codes")
    return frozenset(policy.elements("retryableStatusCodes", _CODE))


def _parse_throttling(throttling: JsonObject) -> RetryThrottling:
    tokens = throttling.need("maxTokens", integer(1, TOKENS_MAX)) or 0
    return RetryThrottling(tokens * MILLITOKENS, throttling.need("tokenRatio", _MILLITOKENS) or 0)


def _to_positive_number(value: object) -> float | None:
    number = to_number(value)
    return number if number is not None and number > 0 else None


def _to_millitokens(value: object) -> int | None:
    from decimal import Decimal  # noqa: PLC0415 - only with a throttling config

    number = _to_positive_number(value)
    # "Decimal places beyond 3 are ignored" - A6; in decimal, since 0.57 × 1000 is below 570.
    return None if number is None else int(Decimal(repr(number)) * MILLITOKENS) or None


def _to_code(value: object) -> StatusCode | None:
    # "the integer form or the case-insensitive string form" - A6
    if isinstance(value, str):
        return _CODES_BY_NAME.get(value.upper())
    number = to_integer(value)
    return None if number is None else _CODES_BY_NUMBER.get(number)


_POSITIVE_NUMBER: Final = FieldKind(_to_positive_number, "a number above 0")
_MILLITOKENS: Final = FieldKind(_to_millitokens, "a number of 0.001 or more")
_CODE: Final = FieldKind(_to_code, "the status code of a failure")
