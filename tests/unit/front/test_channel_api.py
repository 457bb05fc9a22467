"""Unit tests of proxyless.front.channel_api."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.base.explanation import Explanation
from proxyless.channel import ChannelView
from proxyless.channel.call_attempts import Station
from proxyless.channel.request_buffer import RequestBuffer
from proxyless.front.channel_api import ChannelApi, attach_rpc, call_here, failed_rpc_of
from proxyless.front.sync.calls import InactiveRpcError
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Metadata
    from proxyless.channel import Call, Channel

VIEW = ChannelView("dns:///x", State.IDLE, None, None, None, 0, None, OK)


class Core:
    """The part of a channel that is used here."""

    def view(self) -> ChannelView:
        return VIEW


class FailedCall:
    """The part of a call that is used here."""

    def __init__(self, channel: Core) -> None:
        self._channel = channel
        self._method = type("Method", (), {"path": "/s/m"})
        self._metadata = (("a", "b"),)
        self._picked = None
        self._generation = 0
        self._request = RequestBuffer("identity")
        self.station = Station.ENDED


class Front(ChannelApi[Any, Any, Any, Any]):
    """A channel of neither API."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.explainer = explain

    def _with_core(self, function: Callable[[Channel], Any]) -> Any:  # noqa: ANN401
        return function(cast("Channel", self._core))


def explain(view: ChannelView, path: str, metadata: Metadata) -> Explanation:
    return Explanation("rpc", f"{view.target} {path} {dict(metadata)}")


def failed(core: Core) -> InactiveRpcError:
    error = InactiveRpcError(StreamEnd(Status(StatusCode.UNAVAILABLE, "x")))
    return attach_rpc(error, cast("Call", FailedCall(core)), call_here)


@pytest.mark.parametrize("method", [3, b"/s/m", None])
def test_method_that_is_no_text_is_refused(method: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"method is of type \w+, wanted str"):
        Front(Core()).explain(method)


def test_explain_and_lb_tree_read_the_view_of_the_core() -> None:
    front = Front(Core())
    assert front.explain("s/m", [("k", "v")]).text == "dns:///x /s/m {'k': 'v'}"
    assert front.lb_tree() is None


def test_explain_checks_metadata_as_an_rpc_does() -> None:
    with pytest.raises(ValueError, match="metadata key 'Bad' is not valid"):
        Front(Core()).explain("/s/m", [("Bad", "v")])


def test_explain_raises_without_an_explainer() -> None:
    front = Front(Core())
    front.explainer = None
    with pytest.raises(RuntimeError, match="without a function that explains it"):
        front.explain("/s/m")


def test_an_error_refers_to_its_rpc() -> None:
    core = Core()
    failed_rpc = failed_rpc_of(failed(core))
    assert failed_rpc is not None
    explanation = failed_rpc.explain(explain)
    assert explanation is not None
    assert explanation.text == "dns:///x /s/m {'a': 'b'}"


def test_an_error_does_not_keep_its_channel() -> None:
    failed_rpc = failed_rpc_of(failed(Core()))
    assert failed_rpc is not None
    assert failed_rpc.explain(explain) is None


def test_a_copy_of_an_error_refers_to_no_rpc() -> None:
    copied = pickle.loads(pickle.dumps(failed(Core())))
    assert copied.details() == "x"
    assert failed_rpc_of(copied) is None


def test_other_errors_refer_to_no_rpc() -> None:
    assert failed_rpc_of(grpc.RpcError()) is None
    assert failed_rpc_of(ValueError()) is None
