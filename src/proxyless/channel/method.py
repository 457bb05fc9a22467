"""Per-method cache of a channel: request header encoder, message limits, metrics and tracing.

Specs: A81 (attempts whose authority is not the channel's).
"""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen, mutable
from proxyless.lb.api import PickInfo
from proxyless.resolver.target import encode_authority
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.service_config import MethodConfig
    from proxyless.metrics import CallRecorder
    from proxyless.metrics.tracers import MethodTracing

# Encoders of a method for other authorities: one per endpoint. Past this the cache is cleared.
AUTHORITIES_MAX: Final = 256


@frozen
class MessageLimits:
    """Size limits of the messages of an RPC."""

    request_bytes_max: float
    response_bytes_max: float = inf

    def narrowed(self, config: MethodConfig) -> MessageLimits:
        """With the limits of the method's config, where they are smaller."""
        request_bytes_max, response_bytes_max = config.request_bytes_max, config.response_bytes_max
        return MessageLimits(
            min(self.request_bytes_max, inf if request_bytes_max is None else request_bytes_max),
            inf if response_bytes_max is None else response_bytes_max,
        )


@mutable(eq=False)
class Method:
    """One method at one authority: the state that all its calls share."""

    path: str
    encoder: RequestEncoder
    options: ChannelOptions
    limits: MessageLimits
    # Pick info of calls without metadata. Replaced when the selector adds other attributes.
    plain_info: PickInfo
    # None without stats plugins.
    recorder: CallRecorder | None = None
    # Empty unless stats plugins trace calls.
    tracings: tuple[MethodTracing, ...] = ()
    # For measured calls: a plain pick info, and the same one with labels, which are those of the
    # pick under way.
    unlabelled_info: PickInfo | None = None
    labelled_info: PickInfo | None = None
    pick_labels: dict[str, str] = field(default_factory=dict)
    # By authority.
    _rewritten: dict[str, RequestEncoder] = field(default_factory=dict)

    def encoder_for(self, authority: str) -> RequestEncoder:
        """Encoder for an attempt whose picker rewrote the authority (A81)."""
        encoder = self._rewritten.get(authority)
        if encoder is None:
            if len(self._rewritten) >= AUTHORITIES_MAX:
                self._rewritten.clear()
            # It is encoded because an EDS resource may contain any text.
            encoder = _make_encoder(self.path, encode_authority(authority), self.options)
            self._rewritten[authority] = encoder
        return encoder


def make_method(
    path: str, authority: str, options: ChannelOptions, *, is_registered: bool
) -> Method:
    """`is_registered`: the method comes from generated code."""
    encoder = _make_encoder(path, authority, options)
    metrics = options.metrics
    recorder = None
    if metrics.active:
        from proxyless.metrics import CallRecorder  # noqa: PLC0415 - few channels use it

        recorder = CallRecorder(metrics, path, is_registered=is_registered)
    limits = MessageLimits(options.send_bytes_max)
    method = Method(path, encoder, options, limits, PickInfo(path), recorder)
    if metrics.is_traced:
        from proxyless.metrics.tracers import choose_tracings  # noqa: PLC0415 - few channels use it

        method.tracings = choose_tracings(metrics.plugins, path)
    return method


def _make_encoder(path: str, authority: str, options: ChannelOptions) -> RequestEncoder:
    return RequestEncoder(
        path=path,
        authority=authority,
        scheme=options.scheme,
        user_agent=options.user_agent,
    )
