"""Parsers of a route's retry policy (A44), hash policies (A42) and mirror policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import StatusCode
from proxyless.xds.parsing.limits import HASH_POLICIES_MAX, MIRROR_POLICIES_MAX
from proxyless.xds.parsing.matchers import parse_runtime_fraction
from proxyless.xds.parsing.proto_fields import (
    add_error,
    check_regex,
    parse_list,
    read_duration_s,
    read_uint32,
)
from proxyless.xds.resources.route import HashPolicy, MirrorPolicy, RetryOnPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto

_RETRY_ON: Final = {
    "cancelled": StatusCode.CANCELLED,
    "deadline-exceeded": StatusCode.DEADLINE_EXCEEDED,
    "internal": StatusCode.INTERNAL,
    "resource-exhausted": StatusCode.RESOURCE_EXHAUSTED,
    "unavailable": StatusCode.UNAVAILABLE,
}
# "any maxAttempts value greater than 5 will be treated as 5" - A44
_NUM_RETRIES_MAX: Final = 4
_NUM_RETRIES_DEFAULT: Final = 1
_BACKOFF_BASE_DEFAULT_S: Final = 0.025
_BACKOFF_MAX_DEFAULT_S: Final = 0.250
# "defaults to 10 times base_interval" - A44
_BACKOFF_MAX_TIMES_BASE: Final = 10
# "less than 1ms will be treated as 1ms" - A44
_BACKOFF_MIN_S: Final = 0.001

_CHANNEL_ID_KEY: Final = "io.grpc.channel_id"
_MILLION: Final = 1_000_000


def parse_retry(policy: Proto, errors: ValidationErrors) -> RetryOnPolicy:
    """A RetryPolicy message. The set of status codes may be empty."""
    num_retries = read_uint32(policy, "num_retries")
    if num_retries is None:
        num_retries = _NUM_RETRIES_DEFAULT
    elif num_retries == 0:
        add_error(errors, "num_retries", "is 0, wanted at least 1")
    base_s, max_s = _parse_backoff(policy, errors)
    # "will ignore any other conditions" - A44
    conditions = (condition.strip() for condition in policy.retry_on.split(","))
    codes = frozenset(_RETRY_ON[condition] for condition in conditions if condition in _RETRY_ON)
    return RetryOnPolicy(codes, min(num_retries, _NUM_RETRIES_MAX), base_s, max_s)


def _parse_backoff(policy: Proto, errors: ValidationErrors) -> tuple[float, float]:
    """The base and the maximum interval."""
    if not policy.HasField("retry_back_off"):
        return _BACKOFF_BASE_DEFAULT_S, _BACKOFF_MAX_DEFAULT_S
    backoff = policy.retry_back_off
    with errors.field("retry_back_off"):
        if not backoff.HasField("base_interval"):
            add_error(errors, "base_interval", "is unset")
        base_s = _parse_interval_s(backoff, "base_interval", errors)
        max_s = _parse_interval_s(backoff, "max_interval", errors)
        if base_s is None:
            return _BACKOFF_BASE_DEFAULT_S, _BACKOFF_MAX_DEFAULT_S
        if max_s is None:
            max_s = base_s * _BACKOFF_MAX_TIMES_BASE
        elif max_s < base_s:
            text = f"is {max_s} s, wanted at least the base_interval of {base_s} s"
            add_error(errors, "max_interval", text)
    return max(base_s, _BACKOFF_MIN_S), max(max_s, _BACKOFF_MIN_S)


def _parse_interval_s(backoff: Proto, field: str, errors: ValidationErrors) -> float | None:
    """None if the field is unset or invalid."""
    errors_before = errors.count
    interval_s = read_duration_s(backoff, field, errors)
    if interval_s is None or errors.count > errors_before:
        return None
    if interval_s == 0:
        add_error(errors, field, "is 0 s, wanted more")
        return None
    return interval_s


def parse_hash_policies(
    messages: Sequence[Proto], errors: ValidationErrors
) -> tuple[HashPolicy, ...]:
    """The hash_policy list of a route action, without the kinds that gRPC ignores."""
    if not messages:
        return ()
    with errors.field("hash_policy"):
        return parse_list(messages, HASH_POLICIES_MAX, _parse_hash_policy, errors)


def _parse_hash_policy(message: Proto, errors: ValidationErrors) -> HashPolicy | None:
    match message.WhichOneof("policy_specifier"):
        case "header":
            with errors.field("header"):
                return _parse_header_policy(message.header, message.terminal, errors)
        case "filter_state" if message.filter_state.key == _CHANNEL_ID_KEY:
            return HashPolicy("channel_id", message.terminal)
        case _:
            # Other kinds are "treated as simply not returning any result for the request" - A42
            return None


def _parse_header_policy(header: Proto, is_terminal: bool, errors: ValidationErrors) -> HashPolicy:
    if not header.header_name:
        add_error(errors, "header_name", "is empty, wanted the name of a header")
    rewrite = None
    if header.HasField("regex_rewrite"):
        with errors.field("regex_rewrite"):
            rewrite = _parse_rewrite(header.regex_rewrite, errors)
    return HashPolicy("header", is_terminal, header.header_name.lower(), rewrite)


def _parse_rewrite(rewrite: Proto, errors: ValidationErrors) -> tuple[str, str]:
    """The source and substitution of a RegexMatchAndSubstitute."""
    source: str = rewrite.pattern.regex
    substitution: str = rewrite.substitution
    errors_before = errors.count
    with errors.field("pattern"), errors.field("regex"):
        check_regex(source, errors)
    if errors.count == errors_before:
        from proxyless.xds.resources.regex import compile_rewrite  # noqa: PLC0415 - few have any

        try:
            compile_rewrite(source, substitution)
        except ValueError as error:
            add_error(errors, "substitution", str(error))
    return source, substitution


def parse_mirror_policies(
    messages: Sequence[Proto], errors: ValidationErrors
) -> tuple[MirrorPolicy, ...]:
    """The request_mirror_policies of a route action, without those that cannot be obeyed."""
    if not messages:
        return ()
    with errors.field("request_mirror_policies"):
        return parse_list(messages, MIRROR_POLICIES_MAX, _parse_mirror_policy, errors)


def _parse_mirror_policy(message: Proto, errors: ValidationErrors) -> MirrorPolicy | None:
    # As in Envoy, all RPCs are copied without a fraction.
    per_million = _MILLION
    if message.HasField("runtime_fraction"):
        with errors.field("runtime_fraction"):
            fraction = parse_runtime_fraction(message.runtime_fraction, errors)
        per_million = 0 if fraction is None else fraction.per_million
    # Copies without these changes might have credentials that are not for the mirror.
    if not message.cluster or not per_million or message.request_headers_mutations:
        return None
    has_shadow_suffix = not message.disable_shadow_host_suffix_append
    return MirrorPolicy(message.cluster, per_million, has_shadow_suffix)
