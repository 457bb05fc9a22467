"""Unit tests of proxyless.base.connectivity."""

import grpc

from proxyless.base.connectivity import State


def test_states_have_grpcs_names() -> None:
    assert {state.name for state in State} == {state.name for state in grpc.ChannelConnectivity}


def test_text_is_the_bare_name() -> None:
    assert f"{State.TRANSIENT_FAILURE}" == "TRANSIENT_FAILURE"
