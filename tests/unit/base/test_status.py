"""Unit tests of proxyless.base.status."""

import grpc
import pytest

from proxyless.base.status import OK, Status, StatusCode


def test_codes_have_grpcs_names_and_numbers() -> None:
    assert {code.name: code.value for code in StatusCode} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


def test_only_the_ok_code_is_ok() -> None:
    assert [code for code in StatusCode if Status(code).is_ok] == [StatusCode.OK]
    assert OK.is_ok


def test_text_is_code_and_details() -> None:
    assert str(Status(StatusCode.UNAVAILABLE, "no route")) == "UNAVAILABLE: no route"


def test_text_without_details_is_the_code_alone() -> None:
    assert str(OK) == "OK"


def test_a_status_is_a_value() -> None:
    status = Status(StatusCode.ABORTED, "x")
    assert status == Status(StatusCode.ABORTED, "x")
    assert len({status, Status(StatusCode.ABORTED, "x"), Status(StatusCode.ABORTED, "y")}) == 2
    with pytest.raises(AttributeError):
        status.details = "z"  # type: ignore[misc]
