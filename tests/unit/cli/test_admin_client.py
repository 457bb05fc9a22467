"""Unit tests of proxyless.cli.admin_client without sockets. Others are in tests/interop."""

from __future__ import annotations

import grpc

from proxyless.cli.admin_client import describe_failure, is_unimplemented, live_message
from tests.worlds.rpc_errors import FailedRpc


def test_failure_text_names_missing_csds_or_the_status() -> None:
    unavailable, unimplemented = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED
    assert describe_failure("h:1", FailedRpc(unavailable)) == "'h:1': UNAVAILABLE: some words"
    assert describe_failure("h:1", FailedRpc(unimplemented)) == (
        "'h:1' has no CSDS, wanted the port of proxyless.admin.add_servicers"
    )
    assert is_unimplemented(FailedRpc(unimplemented))
    assert not is_unimplemented(FailedRpc(unavailable))


def test_failure_text_is_escaped() -> None:
    text = describe_failure("h:1", FailedRpc(grpc.StatusCode.UNKNOWN, "a\n\x1b[2J"))
    assert text == r"'h:1': UNKNOWN: a \x1b[2J"


def test_live_message_has_the_given_fields() -> None:
    assert live_message("ExplainRequest", method="/a/b").method == "/a/b"
