"""Per-call and per-attempt metrics of the RPCs of one method.

Specs: A66 (per-call and per-attempt instruments), A78, A89 (labels that the pick adds), A96
(retries), A108 (custom label), A121 (delays; a draft).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Final, Self

from proxyless.metrics.api import BindingPlugin, Instrument, Kind, RecordValues, StatsPlugin
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
from proxyless.metrics.plugins import LOGGER, Metrics, call_plugin, record_safely

# Bound functions of a method: one per status, cluster and locality. Past this the cache is cleared.
BOUND_MAX: Final = 1_024

_START: Final = (ATTEMPT_STARTED,)
_ATTEMPT_END: Final = (ATTEMPT_DURATION, ATTEMPT_SENT, ATTEMPT_RECEIVED)
_CALL_END: Final = (CALL_DURATION,)
_ONE: Final = (1,)


class CallRecorder:
    """Records the RPCs of one method with every plugin of a channel.

    The plugins' labels for method and target are looked up once, and so are attribute sets of a
    plugin that binds them.
    """

    __slots__ = ("_bound", "_plugins", "current_context", "custom", "is_measuring")

    def __init__(self, metrics: Metrics, path: str, *, is_registered: bool) -> None:
        # Each with its labels for method and target.
        self._plugins: tuple[tuple[StatsPlugin, tuple[str, str]], ...] = tuple(
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
        # False if all plugins only trace.
        self.is_measuring: Final = bool(self._plugins)
        # "When not specified, the value will be empty string" - A108
        self.custom = ""
        # None unless a plugin needs the context of the application. Called by the thread, and in
        # the context, that starts an RPC; if it returns something, `in_current_context` is.
        self.current_context: Final = _find_context(plugin for plugin, _ in self._plugins)
        # Bound recorders of all custom labels, by instruments and label values.
        self._bound: dict[object, RecordValues] = {}

    def labelled(self, custom: str) -> Self:
        """The recorder of RPCs with this custom label (A108)."""
        recorder = copy(self)
        recorder.custom = custom
        return recorder

    def in_current_context(self) -> Self:
        """The recorder of one RPC. Called by the thread, and in the context, that starts it."""
        plugins = tuple([(_in_current_context(plugin), labels) for plugin, labels in self._plugins])
        if plugins == self._plugins:
            return self
        recorder = copy(self)
        recorder._plugins, recorder._bound = plugins, {}  # noqa: SLF001 - of this class
        return recorder

    def on_attempt_start(self) -> None:
        custom = self.custom
        record = self._bound.get(custom)
        if record is None:
            record = self._bind(custom, _START, (), (custom,))
        try:
            record(_ONE)
        except Exception:
            LOGGER.exception("stats plugin: %r raised", record)

    def on_attempt_end(
        self,
        status: str,
        duration_s: float,
        sent_bytes: int,
        received_bytes: int,
        pick_labels: Mapping[str, str],
    ) -> None:
        # "If no locality information is available, the label will be set to the empty string" - A78
        if pick_labels:
            locality = pick_labels.get(LOCALITY, "")
            key = (status, locality, pick_labels.get(BACKEND_SERVICE, ""), self.custom)
        else:
            key = (status, "", "", self.custom)
        record = self._bound.get(key)
        if record is None:
            record = self._bind(key, _ATTEMPT_END, key[:1], key[1:])
        try:
            record((duration_s, sent_bytes, received_bytes))
        except Exception:
            LOGGER.exception("stats plugin: %r raised", record)

    def on_call_end(self, status: str, duration_s: float) -> None:
        key = (status, self.custom)
        record = self._bound.get(key)
        if record is None:
            record = self._bind(key, _CALL_END, key[:1], key[1:])
        try:
            record((duration_s,))
        except Exception:
            LOGGER.exception("stats plugin: %r raised", record)

    def _bind(
        self,
        key: object,
        instruments: Sequence[Instrument],
        labels: Sequence[str],
        optional: Sequence[str],
    ) -> RecordValues:
        """The function of all plugins that records these instruments. Kept for the next RPC.

        `labels` follow those of method and target.
        """
        bound = [
            _bind(plugin, instruments, (*of_method, *labels), optional)
            for plugin, of_method in self._plugins
        ]

        def record_all(values: tuple[float, ...]) -> None:
            for each in bound:
                record_safely(each, values)

        if len(self._bound) >= BOUND_MAX:
            self._bound.clear()
        record = self._bound[key] = bound[0] if len(bound) == 1 else record_all
        return record

    def on_call_delay(self, kind: str, duration_s: float) -> None:
        self._record_delay(CALL_DELAY, kind, duration_s)

    def on_attempt_delay(self, kind: str, duration_s: float) -> None:
        self._record_delay(ATTEMPT_DELAY, kind, duration_s)

    def _record_delay(self, instrument: Instrument, kind: str, duration_s: float) -> None:
        for plugin, (method, target) in self._plugins:
            labels, optional = (target, kind), (method, self.custom)
            record_safely(plugin.record, instrument, duration_s, labels, optional)

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


def _bind(
    plugin: StatsPlugin,
    instruments: Sequence[Instrument],
    labels: Sequence[str],
    optional: Sequence[str],
) -> RecordValues:
    """The plugin's own function, or one that calls `count` and `record`."""
    if hasattr(plugin, "bind"):
        binding: BindingPlugin = plugin  # type: ignore[assignment]
        found = call_plugin(None, binding.bind, instruments, labels, optional)
        if found is not None:
            return found

    def record_each(values: tuple[float, ...]) -> None:
        for instrument, value in zip(instruments, values, strict=True):
            method = plugin.count if instrument.kind is Kind.COUNTER else plugin.record
            record_safely(method, instrument, value, labels, optional)

    return record_each


def _find_context(plugins: Iterable[StatsPlugin]) -> Callable[[], object] | None:
    found = [getattr(plugin, "current_context", None) for plugin in plugins]
    wanted = [each for each in found if each is not None]
    if len(wanted) > 1:
        return lambda: any(each() for each in wanted)
    return wanted[0] if wanted else None


def _in_current_context(plugin: StatsPlugin) -> StatsPlugin:
    if getattr(plugin, "current_context", None) is None:
        return plugin
    binding: BindingPlugin = plugin  # type: ignore[assignment]
    return call_plugin(plugin, binding.in_current_context)
