"""Parser of the fault config."""

import pytest

from proxyless.base import StatusCode, ValidationErrors
from proxyless.protos import Proto
from proxyless.xds.filters.fault import (
    FAULT_TYPE,
    FaultAbort,
    FaultConfig,
    FaultDelay,
    FaultFilterFactory,
    Percentage,
)
from tests.unit.xds.parsing.messages import Json, make


def parse(message: Proto) -> tuple[FaultConfig, str]:
    errors = ValidationErrors()
    config = FaultFilterFactory().parse_config(message, errors)
    return config, str(errors)


def parse_valid(**fields: object) -> FaultConfig:
    config, errors = parse(make(FAULT_TYPE, fields))
    assert errors == "[]"
    return config


def test_empty_config_has_no_faults() -> None:
    assert parse_valid() == FaultConfig()


def test_delay_abort_and_limit_are_parsed() -> None:
    config = parse_valid(
        delay={"fixed_delay": "1.5s", "percentage": {"numerator": 10}},
        abort={
            "grpc_status": 7,
            "percentage": {"numerator": 20, "denominator": "TEN_THOUSAND"},
        },
        max_active_faults=0,
    )
    assert config == FaultConfig(
        FaultDelay(1.5, Percentage(10, 100)),
        FaultAbort(StatusCode.PERMISSION_DENIED, Percentage(20, 10_000)),
        max_active_faults=0,
    )


@pytest.mark.spec("A33-05")
@pytest.mark.parametrize(
    ("http_status", "code"),
    [
        (200, StatusCode.UNKNOWN),
        (400, StatusCode.INTERNAL),
        (401, StatusCode.UNAUTHENTICATED),
        (403, StatusCode.PERMISSION_DENIED),
        (404, StatusCode.UNIMPLEMENTED),
        (503, StatusCode.UNAVAILABLE),
        (999, StatusCode.UNKNOWN),
    ],
)
def test_http_status_is_mapped_to_a_status_code(http_status: int, code: StatusCode) -> None:
    config = parse_valid(abort={"http_status": http_status})
    assert config.abort == FaultAbort(code, Percentage())


def test_grpc_status_ok_is_an_abort() -> None:
    config = parse_valid(abort={"grpc_status": 0})
    assert config.abort == FaultAbort(StatusCode.OK, Percentage())


def test_value_is_none_when_headers_set_it() -> None:
    percentage: Json = {"numerator": 5, "denominator": "MILLION"}
    config = parse_valid(
        delay={"header_delay": {}, "percentage": percentage},
        abort={"header_abort": {}, "percentage": percentage},
    )
    assert config.delay == FaultDelay(None, Percentage(5, 1_000_000))
    assert config.abort == FaultAbort(None, Percentage(5, 1_000_000))


def test_fault_without_a_specifier_is_ignored() -> None:
    percentage = {"numerator": 5}
    config = parse_valid(delay={"percentage": percentage}, abort={"percentage": percentage})
    assert config == FaultConfig()


def test_percentage_is_at_most_100() -> None:
    config = parse_valid(abort={"grpc_status": 14, "percentage": {"numerator": 300}})
    assert config.abort == FaultAbort(StatusCode.UNAVAILABLE, Percentage(100, 100))


@pytest.mark.spec("A33-19")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"abort": {"grpc_status": 17}},
            "[field:abort.grpc_status error:is 17, wanted a status code from 0 to 16]",
        ),
        (
            {"delay": {"fixed_delay": "-1s"}},
            "[field:delay.fixed_delay.seconds error:is -1, wanted 0 to 315576000000]",
        ),
    ],
)
def test_error_names_the_field(fields: Json, text: str) -> None:
    assert parse(make(FAULT_TYPE, fields))[1] == text


@pytest.mark.spec("A33-19")
@pytest.mark.parametrize("fault", ["delay", "abort"])
def test_unknown_denominator_is_rejected(fault: str) -> None:
    message = make(FAULT_TYPE, {})
    getattr(message, fault).percentage.denominator = 9
    assert parse(message)[1] == (
        f"[field:{fault}.percentage.denominator"
        " error:is 9, wanted HUNDRED, TEN_THOUSAND or MILLION]"
    )


def test_override_is_parsed_as_a_config() -> None:
    errors = ValidationErrors()
    message = make(FAULT_TYPE, {"max_active_faults": 2})
    override = FaultFilterFactory().parse_override(message, errors)
    assert override == FaultConfig(max_active_faults=2)


def test_typed_struct_is_rejected() -> None:
    errors = ValidationErrors()
    assert FaultFilterFactory().parse_config({}, errors) == FaultConfig()
    assert str(errors) == f"[error:is a TypedStruct, wanted {FAULT_TYPE}]"
