"""What are plugins told about the RPCs of one method?

Specs: A66 (per-call and per-attempt instruments), A78, A89 (labels that the pick brings).

What does not change from RPC to RPC is looked up once: who listens, and what each of them calls the
method and the target.
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
from proxyless.metrics.plugins import Metrics, ask, tell


class CallRecorder:
    """Tells every plugin of a channel about RPCs of one method."""

    __slots__ = ("_listeners",)

    def __init__(self, metrics: Metrics, path: str, *, is_registered: bool) -> None:
        self._listeners: Final = tuple(
            (
                plugin,
                (
                    ask(OTHER, plugin.label_method, path, is_registered=is_registered),
                    ask(OTHER, plugin.label_target, metrics.target),
                ),
            )
            for plugin in metrics.plugins
        )

    def on_attempt_start(self) -> None:
        for plugin, labels in self._listeners:
            tell(plugin.count, ATTEMPT_STARTED, 1, labels)

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
        for plugin, labels in self._listeners:
            whole = (*labels, status)
            tell(plugin.record, ATTEMPT_DURATION, duration_s, whole, optional)
            tell(plugin.record, ATTEMPT_SENT, sent_bytes, whole, optional)
            tell(plugin.record, ATTEMPT_RECEIVED, received_bytes, whole, optional)

    def on_call_end(self, status: str, duration_s: float) -> None:
        for plugin, labels in self._listeners:
            tell(plugin.record, CALL_DURATION, duration_s, (*labels, status))
