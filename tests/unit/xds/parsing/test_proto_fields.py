"""Parsers of single fields, and the errors for invalid ones."""

from collections.abc import Callable

import pytest

from proxyless.base import ValidationErrors
from proxyless.base.validation import ERRORS_MAX
from proxyless.protos import Proto, message_class
from proxyless.xds.parsing.limits import PART_WORK_MAX
from proxyless.xds.parsing.proto_fields import (
    DURATION_NANOS_MAX,
    DURATION_SECONDS_MAX,
    Extension,
    check_config_source,
    check_count,
    check_regex,
    decode_any_as,
    decode_extension,
    parse_duration_s,
    parse_extension,
    parse_fraction,
    parse_list,
    read_denominator,
    read_duration_s,
    read_uint32,
    spend_work,
    unwrap_any,
)
from proxyless.xds.resources.matcher import Fraction

ROUTER = "envoy.extensions.filters.http.router.v3.Router"
HOST = "type.googleapis.com/"


@pytest.fixture
def errors() -> ValidationErrors:
    return ValidationErrors()


def new(full_name: str, **fields: object) -> Proto:
    return message_class(full_name)(**fields)


def duration(seconds: int = 0, nanos: int = 0) -> Proto:
    return new("google.protobuf.Duration", seconds=seconds, nanos=nanos)


def action() -> Proto:
    return new("envoy.config.route.v3.RouteAction")


# Durations, numbers, fractions


@pytest.mark.parametrize(
    ("seconds", "nanos", "wanted"),
    [
        (0, 0, 0.0),
        (1, 500_000_000, 1.5),
        (DURATION_SECONDS_MAX, 0, float(DURATION_SECONDS_MAX)),
        (0, DURATION_NANOS_MAX, 0.999999999),
    ],
)
def test_duration_within_the_range_is_parsed(
    seconds: int, nanos: int, wanted: float, errors: ValidationErrors
) -> None:
    assert parse_duration_s(duration(seconds, nanos), errors) == wanted
    assert errors.ok


@pytest.mark.parametrize(
    ("seconds", "nanos", "error"),
    [
        (-1, 0, "[field:seconds error:is -1, wanted 0 to 315576000000]"),
        (DURATION_SECONDS_MAX + 1, 0, "[field:seconds error:is 315576000001, wanted"),
        (0, -1, "[field:nanos error:is -1, wanted 0 to 999999999]"),
        (0, DURATION_NANOS_MAX + 1, "[field:nanos error:is 1000000000, wanted"),
    ],
)
def test_duration_out_of_range_is_an_error(
    seconds: int, nanos: int, error: str, errors: ValidationErrors
) -> None:
    parse_duration_s(duration(seconds, nanos), errors)
    assert str(errors).startswith(error)


def test_unset_field_is_none_and_not_zero(errors: ValidationErrors) -> None:
    message = action()
    assert read_duration_s(message, "timeout", errors) is None
    message.timeout.SetInParent()
    assert read_duration_s(message, "timeout", errors) == 0.0
    policy = new("envoy.config.route.v3.RetryPolicy")
    assert read_uint32(policy, "num_retries") is None
    policy.num_retries.SetInParent()
    assert read_uint32(policy, "num_retries") == 0


def test_invalid_duration_is_an_error_at_its_field(errors: ValidationErrors) -> None:
    message = action()
    message.timeout.nanos = -5
    read_duration_s(message, "timeout", errors)
    assert str(errors) == "[field:timeout.nanos error:is -5, wanted 0 to 999999999]"


@pytest.mark.parametrize(
    ("numerator", "denominator", "per_million"),
    [(1, 0, 10_000), (1, 1, 100), (1, 2, 1), (250, 0, 1_000_000), (2**32 - 1, 2, 1_000_000)],
)
def test_fraction_is_scaled_to_a_million(
    numerator: int, denominator: int, per_million: int, errors: ValidationErrors
) -> None:
    percent = new("envoy.type.v3.FractionalPercent", numerator=numerator, denominator=denominator)
    assert parse_fraction(percent, errors) == Fraction(per_million)
    assert errors.ok


def test_unknown_denominator_is_an_error(errors: ValidationErrors) -> None:
    read_denominator(new("envoy.type.v3.FractionalPercent", denominator=3), errors)
    assert str(errors) == (
        "[field:denominator error:is 3, wanted HUNDRED, TEN_THOUSAND or MILLION]"
    )


# Strings, lists, sources


def test_invalid_regular_expression_is_an_error(errors: ValidationErrors) -> None:
    check_regex("a.*", errors)
    assert errors.ok
    check_regex("(", errors)
    assert str(errors) == "[error:is not a valid regular expression: missing ): (]"


def test_work_of_a_part_is_limited(errors: ValidationErrors) -> None:
    assert spend_work(PART_WORK_MAX, errors)
    assert errors.ok
    assert not spend_work(1, errors)
    assert str(errors) == (
        "[error:is too large or has too many elements, wanted less in one place]"
    )
    assert errors.take_work() == PART_WORK_MAX + 1
    assert spend_work(1, errors)


def test_list_stops_when_its_work_is_above_the_limit(errors: ValidationErrors) -> None:
    parsed = parse_list(range(PART_WORK_MAX), None, lambda number, _: number, errors)
    assert 0 < len(parsed) < PART_WORK_MAX
    assert errors.count == 1


def test_list_stops_after_the_errors_that_are_kept(errors: ValidationErrors) -> None:
    parse_list(range(1_000), None, lambda _, errors: errors.add("bad"), errors)
    assert errors.count == ERRORS_MAX + 1


def test_values_of_a_struct_are_limited(errors: ValidationErrors) -> None:
    typed_struct = message_class("xds.type.v3.TypedStruct")(type_url="host/own.Filter")
    values = typed_struct.value.fields["list"].list_value.values
    for _ in range(PART_WORK_MAX):
        values.add(bool_value=True)
    # Behind the list, so that it is not read.
    typed_struct.value.fields["other"].number_value = 1
    any_message = message_class("google.protobuf.Any")()
    any_message.Pack(typed_struct)
    unwrap_any(any_message, errors)
    assert not errors.ok
    assert errors.work < 2 * PART_WORK_MAX


def test_expression_counts_once_while_it_is_cached(errors: ValidationErrors) -> None:
    for _ in range(3):
        check_regex("counts once.*", errors)
    assert 0 < errors.work == errors.regex_work < 100


def test_list_above_the_limit_is_an_error(errors: ValidationErrors) -> None:
    assert check_count([1, 2], 2, errors)
    assert errors.ok
    assert not check_count([1, 2, 3], 2, errors)
    assert str(errors) == "[error:has 3 elements, wanted at most 2]"


@pytest.mark.parametrize(
    ("field", "error"),
    [("ads", ""), ("self", ""), ("path_config_source", "path_config_source"), (None, "unset")],
)
def test_config_source_must_be_ads_or_self(
    field: str | None, error: str, errors: ValidationErrors
) -> None:
    source = new("envoy.config.core.v3.ConfigSource")
    if field is not None:
        getattr(source, field).SetInParent()
    check_config_source(source, errors)
    assert str(errors) == (f"[error:is {error}, wanted ads or self]" if error else "[]")


# Extensions


def any_of(message: Proto) -> Proto:
    return new(
        "google.protobuf.Any",
        type_url=HOST + message.DESCRIPTOR.full_name,
        value=message.SerializeToString(),
    )


def struct_of(type_url: str, fill: Callable[[Proto], None], package: str) -> Proto:
    typed_struct = new(f"{package}.TypedStruct", type_url=type_url)
    fill(typed_struct.value)
    return any_of(typed_struct)


def test_message_in_an_any_is_decoded(errors: ValidationErrors) -> None:
    message = new(ROUTER, suppress_envoy_headers=True)
    extension = unwrap_any(any_of(message), errors)
    assert extension == Extension(ROUTER, message.SerializeToString())
    assert extension is not None
    assert decode_extension(extension, errors) == message
    assert decode_any_as(ROUTER, any_of(message), errors) == message
    assert errors.ok


@pytest.mark.parametrize("package", ["xds.type.v3", "udpa.type.v1"])
def test_typed_struct_is_unwrapped_to_its_type_and_object(
    package: str, errors: ValidationErrors
) -> None:
    def fill(struct: Proto) -> None:
        struct["text"] = "t"
        struct["count"] = 3
        struct["ratio"] = 0.5
        struct["flag"] = True
        struct["nothing"] = None
        struct["inner"] = {"list": [1, "two", [3], {"four": 4}]}

    extension = unwrap_any(struct_of("host/own.Filter", fill, package), errors)
    assert extension == Extension(
        "own.Filter",
        {
            "text": "t",
            "count": 3,
            "ratio": 0.5,
            "flag": True,
            "nothing": None,
            "inner": {"list": [1, "two", [3], {"four": 4}]},
        },
    )
    assert extension is not None
    assert isinstance(extension.value, dict)
    assert isinstance(extension.value["count"], int)
    assert decode_extension(extension, errors) is extension.value
    assert errors.ok


def test_infinite_number_in_a_typed_struct_is_an_error(errors: ValidationErrors) -> None:
    def fill(struct: Proto) -> None:
        struct["list"] = [1.0, float("inf")]

    unwrap_any(struct_of("host/own.Filter", fill, "xds.type.v3"), errors)
    assert str(errors) == (
        '[field:["xds.type.v3.TypedStruct"].value["list"][1] error:is inf, wanted a finite number]'
    )


@pytest.mark.parametrize("type_url", ["", "no.Slash", "host/"])
def test_type_url_without_host_or_name_is_an_error(type_url: str, errors: ValidationErrors) -> None:
    assert unwrap_any(new("google.protobuf.Any", type_url=type_url), errors) is None
    assert str(errors) == (
        f"[field:type_url error:is {type_url!r}, wanted one such as 'host/package.Type']"
    )


def test_type_url_of_a_typed_struct_without_host_is_an_error(errors: ValidationErrors) -> None:
    message = struct_of("own.Filter", lambda _: None, "udpa.type.v1")
    assert unwrap_any(message, errors) is None
    assert str(errors) == (
        '[field:["udpa.type.v1.TypedStruct"].type_url'
        " error:is 'own.Filter', wanted one such as 'host/package.Type']"
    )


@pytest.mark.parametrize("name", [ROUTER, "xds.type.v3.TypedStruct"])
def test_undecodable_bytes_are_an_error(name: str, errors: ValidationErrors) -> None:
    broken = new("google.protobuf.Any", type_url=HOST + name, value=b"\xff")
    assert decode_any_as(name, broken, errors) is None
    assert str(errors) == f'[field:["{name}"] error:cannot be decoded as {name}]'


def test_message_type_without_descriptor_is_an_error(errors: ValidationErrors) -> None:
    assert decode_extension(Extension("own.Filter", b""), errors) is None
    assert str(errors) == (
        '[field:["own.Filter"] error:is of a type that is not known here,'
        " wanted one that is, or a TypedStruct]"
    )


def test_any_of_another_type_is_an_error(errors: ValidationErrors) -> None:
    metadata = new("envoy.config.core.v3.Metadata")
    assert decode_any_as(ROUTER, any_of(metadata), errors) is None
    in_json = struct_of(HOST + ROUTER, lambda _: None, "xds.type.v3")
    assert decode_any_as(ROUTER, in_json, errors) is None
    assert str(errors) == (
        f"[errors:[is envoy.config.core.v3.Metadata, wanted {ROUTER};"
        f" is a TypedStruct of {ROUTER}, wanted {ROUTER}]]"
    )


def test_exception_of_a_parser_is_an_error(errors: ValidationErrors) -> None:
    def parse(message: object, _errors: ValidationErrors) -> int:
        return int(str(message))

    assert parse_extension(parse, Extension("own.Filter", {}), errors) is None
    assert str(errors) == (
        '[field:["own.Filter"]'
        " error:its parser raised ValueError: invalid literal for int() with base 10: '{}']"
    )
