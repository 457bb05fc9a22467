"""Unit tests of tools.peers.connect."""

import pytest

from tools.peers.connect import parse_output
from tools.peers.outcomes import BrokenSuiteError

OUTPUT = """\
Running 2 tests with reference-server for server config #1 {HTTP_VERSION_2}...
Sending request for "Basic/TLS:false/unary/success"...
Sending request for "Errors/TLS:false/unary/aborted"...
Received response for "Basic/TLS:false/unary/success"...
FAILED: Errors/TLS:false/unary/aborted:
\tactual error does not match
\tanother line

Total cases: {total}
1 passed, 1 failed
"""


def test_each_case_has_its_outcome() -> None:
    assert parse_output(OUTPUT.replace("{total}", "2")) == {
        "Basic/TLS:false/unary/success": None,
        "Errors/TLS:false/unary/aborted": "actual error does not match",
    }


@pytest.mark.parametrize("total", ["3", "?"])
def test_output_is_refused_when_its_total_is_another(total: str) -> None:
    with pytest.raises(BrokenSuiteError, match="reported 2 cases"):
        parse_output(OUTPUT.replace("{total}", total))
