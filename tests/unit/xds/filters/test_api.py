"""Messages of filters."""

from proxyless.base import ValidationErrors
from proxyless.xds.filters.api import want_message


def test_typed_struct_is_rejected_by_want_message() -> None:
    errors = ValidationErrors()
    assert want_message({}, "own.Filter", errors) is None
    assert str(errors) == "[error:is a TypedStruct, wanted own.Filter]"
