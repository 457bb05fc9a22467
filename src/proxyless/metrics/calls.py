"""Per-call and per-attempt metrics of the RPCs of one method.

Specs: A66 (per-call and per-attempt instruments), A78, A89 (labels that the pick adds).
"""

from collections.abc import Mapping
from typing import Final

from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    BACKEND_SERVICE,
    CALL_DURATION,
    LOCALITY,
    OTHER,
)
from proxyless.metrics.plugins import Metrics, call_plugin, record_safely


class CallRecorder:
    """Records the RPCs of one method with every plugin of a channel.

    The plugins' labels for method and target are looked up once.
    """

    __slots__ = ("_plugins",)

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
        )

    def on_attempt_start(self) -> None:
        for plugin, labels in self._plugins:
            record_safely(plugin.count, ATTEMPT_STARTED, 1, labels)

    def on_attempt_end(
        self,
        status: str,
        duration_s: float,
        sent_bytes: int,
        received_bytes: int,
        pick_labels: Mapping[str, str],
    ) -> None:
        # "If no locality information is available, the label will be set to the empty string" - A78
        optional = (pick_labels.get(LOCALITY, ""), pick_labels.get(BACKEND_SERVICE, ""))
        for plugin, labels in self._plugins:
            with_status = (*labels, status)
            record_safely(plugin.record, ATTEMPT_DURATION, duration_s, with_status, optional)
            record_safely(plugin.record, ATTEMPT_SENT, sent_bytes, with_status, optional)
            record_safely(plugin.record, ATTEMPT_RECEIVED, received_bytes, with_status, optional)

    def on_call_end(self, status: str, duration_s: float) -> None:
        for plugin, labels in self._plugins:
            record_safely(plugin.record, CALL_DURATION, duration_s, (*labels, status))
