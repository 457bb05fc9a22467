"""What do all RPCs of one channel, and of one method, have in common?

Specs: A81 (attempts whose authority is not the channel's).

Made once for each method that an application calls, so that an RPC finds its header block half
encoded, and who measures it looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.lb.api import PickInfo
from proxyless.metrics import CallRecorder
from proxyless.resolver.target import encode_authority
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.service_config import MethodConfig

# How many encoders a method keeps for authorities that are not its own: one for each endpoint that
# it meets. Past this all are forgotten, and made anew.
AUTHORITIES_MAX: Final = 256


@frozen
class MessageLimits:
    """Size limits of the messages of an RPC."""

    request_bytes_max: float
    response_bytes_max: float = inf

    def narrowed(self, config: MethodConfig) -> MessageLimits:
        """With the limits of the method's config, where they are smaller."""
        request_bytes_max, response_bytes_max = config.request_bytes_max, config.response_bytes_max
        if request_bytes_max is None and response_bytes_max is None:
            return self
        return MessageLimits(
            min(self.request_bytes_max, inf if request_bytes_max is None else request_bytes_max),
            inf if response_bytes_max is None else response_bytes_max,
        )


@dataclass(slots=True, eq=False)
class Method:
    """One method at one authority: what all its calls share."""

    path: str
    encoder: RequestEncoder
    options: ChannelOptions
    limits: MessageLimits
    # What a pick was told about the last call that brought no metadata. Calls share it as long as
    # their selector adds the same attributes.
    plain_info: PickInfo
    # Who is told about its calls; None if nobody is.
    recorder: CallRecorder | None = None
    # By the authority that pickers gave to attempts.
    _rewritten: dict[str, RequestEncoder] = field(default_factory=dict)

    def encoder_for(self, authority: str) -> RequestEncoder:
        """For an attempt that has this authority in place of the channel's (A81)."""
        encoder = self._rewritten.get(authority)
        if encoder is None:
            if len(self._rewritten) >= AUTHORITIES_MAX:
                self._rewritten.clear()
            # Somebody else's text: an EDS resource may have anything there.
            encoder = _make_encoder(self.path, encode_authority(authority), self.options)
            self._rewritten[authority] = encoder
        return encoder


def make_method(
    path: str, authority: str, options: ChannelOptions, *, is_registered: bool
) -> Method:
    """What a channel with these options knows about a method, which generated code may know."""
    encoder = _make_encoder(path, authority, options)
    metrics = options.metrics
    recorder = CallRecorder(metrics, path, is_registered=is_registered) if metrics.active else None
    limits = MessageLimits(options.send_bytes_max)
    return Method(path, encoder, options, limits, PickInfo(path), recorder)


def _make_encoder(path: str, authority: str, options: ChannelOptions) -> RequestEncoder:
    return RequestEncoder(
        path=path,
        authority=authority,
        scheme=options.scheme,
        user_agent=options.user_agent,
    )
