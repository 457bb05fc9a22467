"""Unit tests of proxyless.wire.errors."""

import pytest
from h2.errors import ErrorCodes

from proxyless.wire.errors import (
    ErrorCode,
    RemoteProtocolError,
    UsageError,
    WireError,
    name_error_code,
)


def test_the_codes_are_those_of_rfc_9113() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {
        code.name: int(code) for code in ErrorCodes
    }


@pytest.mark.parametrize(
    ("code", "name"), [(0, "NO_ERROR"), (0xB, "ENHANCE_YOUR_CALM"), (0xE, "error code 0xe")]
)
def test_an_undefined_code_is_named_by_its_number(code: int, name: str) -> None:
    assert name_error_code(code) == name


def test_a_remote_error_carries_its_code() -> None:
    error = RemoteProtocolError(ErrorCode.CANCEL, "peer did it")
    assert (error.code, str(error)) == (ErrorCode.CANCEL, "peer did it")


@pytest.mark.parametrize("kind", [RemoteProtocolError, UsageError])
def test_every_error_of_the_package_is_a_wire_error(kind: type[Exception]) -> None:
    assert issubclass(kind, WireError)
