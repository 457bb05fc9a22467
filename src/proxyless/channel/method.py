"""What do all RPCs of one channel, and of one method, have in common?

Made once for each method that an application calls, so that an RPC finds its header block half
encoded, and who measures it looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyless.channel.call import Call
from proxyless.lb.api import PickInfo
from proxyless.metrics import CallRecorder
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.channel.channel import ChannelOptions
    from proxyless.metrics import Metrics


@dataclass(slots=True, eq=False)
class Method:
    """One method at one authority: what all its calls share."""

    path: str
    encoder: RequestEncoder
    # What a pick was told about the last call that brought no metadata. Calls share it as long as
    # their selector adds the same attributes.
    plain_info: PickInfo
    # Who is told about its calls; None if nobody is.
    recorder: CallRecorder | None = None


def choose_call_type(metrics: Metrics) -> type[Call]:
    """What a channel makes for each RPC."""
    if not metrics.active:
        return Call
    # Few channels are measured.
    from proxyless.channel.measured import MeasuredCall  # noqa: PLC0415

    return MeasuredCall


def make_method(
    path: str, authority: str, options: ChannelOptions, *, is_registered: bool
) -> Method:
    """What a channel with these options knows about a method, which generated code may know."""
    encoder = RequestEncoder(
        path=path,
        authority=authority,
        scheme=options.scheme,
        user_agent=options.user_agent,
    )
    metrics = options.metrics
    recorder = CallRecorder(metrics, path, is_registered=is_registered) if metrics.active else None
    return Method(path, encoder, PickInfo(path), recorder)
