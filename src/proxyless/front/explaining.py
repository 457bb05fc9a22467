"""How does an application ask why: a channel, or about an error that it raised?

A front only carries the question to the loop on which the answer is found. Who answers is given to
it (`Explain`): what explains stands above the fronts.

An error remembers the RPC that it is about, and the channel only weakly. Nothing is remembered of
an RPC that succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from weakref import ref

from proxyless.base import EMPTY_METADATA
from proxyless.channel.call import origin_of
from proxyless.front.conversions import to_metadata

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.base.explanation import Explanation
    from proxyless.channel import Call, Channel, ChannelView
    from proxyless.lb import LbNode

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

# Says what becomes of an RPC: what is to be seen of its channel, its path, its metadata.
Explain: TypeAlias = "Callable[[ChannelView, str, Metadata], Explanation]"

# Asks on a channel's own loop.
Ask: TypeAlias = Callable[[Callable[[], Any]], Any]

# Where an error keeps it.
_ATTRIBUTE: Final = "failed_rpc"


class Explaining:
    """What all channels can be asked. A front says how to look at its core."""

    explainer: Explain | None

    def _look(self, question: Callable[[Channel], T]) -> T:
        """The answer to a question, found on the channel's loop."""
        raise NotImplementedError

    def lb_tree(self) -> LbNode | None:
        """The load balancing policies and connections as they are now; None while idle.

        Of an asyncio channel: on its loop.
        """
        return self._look(_lb_tree)

    def explain(self, method: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> Explanation:
        """Why an RPC of this method would go where it goes now, or what is in its way.

        Looking changes nothing: an idle channel stays idle, no pick is made, nothing is awaited.
        Of an asyncio channel: on its loop.
        """
        explain, path = self.explainer, method if method.startswith("/") else f"/{method}"
        if explain is None:
            raise RuntimeError("channel was made without anybody who could explain it")
        said = to_metadata(metadata)
        return self._look(
            lambda core: explain(core.view(), path, said + self._own_metadata(path, core))
        )

    def _own_metadata(self, path: str, core: Channel) -> Metadata:
        """What the channel itself adds to an RPC of this path: the cookies of a session."""
        return EMPTY_METADATA


def _lb_tree(core: Channel) -> LbNode | None:
    return core.view().lb_tree()


class FailedRpc:
    """What an error remembers. Gone from copies: another process has no such channel."""

    __slots__ = ("_ask", "_channel", "metadata", "path")

    def __init__(self, call: Call, ask: Ask) -> None:
        channel, self.path, self.metadata = origin_of(call)
        self._channel = ref(channel)
        self._ask = ask

    def explain(self, explain: Explain) -> Explanation | None:
        """What becomes of such an RPC now; None if its channel is gone."""
        channel = self._channel()
        if channel is None:
            return None
        answer: Explanation = self._ask(lambda: explain(channel.view(), self.path, self.metadata))
        return answer

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def remember(error: E, call: Call, ask: Ask) -> E:
    """The error, with what it takes to explain it."""
    setattr(error, _ATTRIBUTE, FailedRpc(call, ask))
    return error


def recall(error: BaseException) -> FailedRpc | None:
    """What the error remembers; None if it is not one of ours, or a copy."""
    found = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, FailedRpc) else None


def ask_here(question: Callable[[], T]) -> T:
    """For errors of asyncio channels, which are asked about on the channel's loop."""
    return question()
