"""Per-call and per-attempt metrics of the RPCs of one method.

Specs: A66 (per-call and per-attempt instruments), A78, A89 (labels that the pick adds), A96
(retries), A108 (custom label), A121 (delays; a draft).
"""

from collections.abc import Mapping
from copy import copy
from typing import Final, Self

from proxyless.metrics.api import Instrument
from proxyless.metrics.instruments import (
    ATTEMPT_DELAY,
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    BACKEND_SERVICE,
    CALL_DELAY,
    CALL_DURATION,
    CALL_HEDGES,
    CALL_RETRIES,
    CALL_RETRY_DELAY,
    CALL_TRANSPARENT_RETRIES,
    LOCALITY,
    OTHER,
)
from proxyless.metrics.plugins import Metrics, call_plugin, record_safely


class CallRecorder:
    """Records the RPCs of one method with every plugin of a channel.

    The plugins' labels for method and target are looked up once.
    """

    __slots__ = ("_plugins", "custom")

    def __init__(self, metrics: Metrics, path: str, *, is_registered: bool) -> None:
        self._plugins: Final = tuple(
            (
                plugin,
                (
                    call_plugin(OTHER, plugin.label_method, path, is_registered=is_registered),
                    call_plugin(OTHER, plugin.label_target, metrics.target),
                ),
            )
            for plugin in metrics.plugins
            # A plugin may only trace (`tracers.TracingPlugin`).
            if getattr(plugin, "is_measuring", True)
        )
        # "When not specified, the value will be empty string" - A108
        self.custom = ""

    def labelled(self, custom: str) -> Self:
        """The recorder of RPCs with this custom label (A108)."""
        recorder = copy(self)
        recorder.custom = custom
        return recorder

    def on_attempt_start(self) -> None:
        for plugin, labels in self._plugins:
            record_safely(plugin.count, ATTEMPT_STARTED, 1, labels, (self.custom,))

    def on_attempt_end(
        self,
        status: str,
        duration_s: float,
        sent_bytes: int,
        received_bytes: int,
        pick_labels: Mapping[str, str],
    ) -> None:
        # "If no locality information is available, the label will be set to the empty string" - A78
        optional = (
            pick_labels.get(LOCALITY, ""),
            pick_labels.get(BACKEND_SERVICE, ""),
            self.custom,
        )
        for plugin, labels in self._plugins:
            with_status = (*labels, status)
            record_safely(plugin.record, ATTEMPT_DURATION, duration_s, with_status, optional)
            record_safely(plugin.record, ATTEMPT_SENT, sent_bytes, with_status, optional)
            record_safely(plugin.record, ATTEMPT_RECEIVED, received_bytes, with_status, optional)

    def on_call_delay(self, kind: str, duration_s: float) -> None:
        self._record_delay(CALL_DELAY, kind, duration_s)

    def on_attempt_delay(self, kind: str, duration_s: float) -> None:
        self._record_delay(ATTEMPT_DELAY, kind, duration_s)

    def _record_delay(self, instrument: Instrument, kind: str, duration_s: float) -> None:
        for plugin, (method, target) in self._plugins:
            labels, optional = (target, kind), (method, self.custom)
            record_safely(plugin.record, instrument, duration_s, labels, optional)

    def on_call_end(self, status: str, duration_s: float) -> None:
        for plugin, labels in self._plugins:
            with_status = (*labels, status)
            record_safely(plugin.record, CALL_DURATION, duration_s, with_status, (self.custom,))

    def on_retried_call_end(
        self, *, retries: int, transparent_retries: int, hedges: int, delay_s: float
    ) -> None:
        """Record what is not 0 (A96): "If there were no retries, 0 is not reported"."""
        values = (
            (CALL_RETRIES, retries),
            (CALL_TRANSPARENT_RETRIES, transparent_retries),
            (CALL_HEDGES, hedges),
            (CALL_RETRY_DELAY, delay_s),
        )
        for plugin, labels in self._plugins:
            for instrument, value in values:
                if value:
                    record_safely(plugin.record, instrument, value, labels, (self.custom,))
