"""Unit tests of client options."""

import pytest

from proxyless.xds.client.api import XdsClientOptions


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "true"}, True),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "True"}, True),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "false"}, False),
        ({"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": ""}, False),
    ],
)
def test_options_have_data_error_handling_when_the_variable_is_true(
    environ: dict[str, str], expected: bool
) -> None:
    assert XdsClientOptions.from_environment(environ).has_data_error_handling is expected
