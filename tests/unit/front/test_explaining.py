"""Unit tests of proxyless.front.explaining."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.base.explanation import Explanation
from proxyless.channel import ChannelView
from proxyless.front.explaining import Explaining, ask_here, recall, remember
from proxyless.front.sync.calls import InactiveRpcError
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Metadata
    from proxyless.channel import Call, Channel

VIEW = ChannelView("dns:///x", State.IDLE, None, None, None, 0, None, OK)


class Core:
    """As much of a channel as is looked at."""

    def view(self) -> ChannelView:
        return VIEW


class FailedCall:
    """As much of a call as is remembered."""

    def __init__(self, channel: Core) -> None:
        self._channel = channel
        self._method = type("Method", (), {"path": "/s/m"})
        self._metadata = (("a", "b"),)


class Front(Explaining):
    """A channel of neither kind."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.explainer = explain

    def _look(self, question: Callable[[Channel], Any]) -> Any:  # noqa: ANN401
        return question(cast("Channel", self._core))


def explain(view: ChannelView, path: str, metadata: Metadata) -> Explanation:
    return Explanation("rpc", f"{view.target} {path} {dict(metadata)}")


def failed(core: Core) -> InactiveRpcError:
    error = InactiveRpcError(StreamEnd(Status(StatusCode.UNAVAILABLE, "x")))
    return remember(error, cast("Call", FailedCall(core)), ask_here)


def test_a_front_carries_the_question_to_its_core() -> None:
    front = Front(Core())
    assert front.explain("s/m", [("k", "v")]).text == "dns:///x /s/m {'k': 'v'}"
    assert front.lb_tree() is None


def test_metadata_is_checked_as_that_of_an_rpc() -> None:
    with pytest.raises(ValueError, match="metadata key 'Bad' is not valid"):
        Front(Core()).explain("/s/m", [("Bad", "v")])


def test_a_channel_that_nobody_explains_says_so() -> None:
    front = Front(Core())
    front.explainer = None
    with pytest.raises(RuntimeError, match="without anybody who could explain it"):
        front.explain("/s/m")


def test_an_error_remembers_its_rpc() -> None:
    core = Core()
    remembered = recall(failed(core))
    assert remembered is not None
    told = remembered.explain(explain)
    assert told is not None
    assert told.text == "dns:///x /s/m {'a': 'b'}"


def test_an_error_does_not_keep_its_channel() -> None:
    remembered = recall(failed(Core()))
    assert remembered is not None
    assert remembered.explain(explain) is None


def test_a_copy_of_an_error_remembers_nothing() -> None:
    copied = pickle.loads(pickle.dumps(failed(Core())))
    assert copied.details() == "x"
    assert recall(copied) is None


def test_other_errors_remember_nothing() -> None:
    assert recall(grpc.RpcError()) is None
    assert recall(ValueError()) is None
