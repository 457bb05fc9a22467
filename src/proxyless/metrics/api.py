"""Interface between the code that measures and the stats plugins.

Specs: A79 (instruments with required and optional labels, stats plugins, callback gauges).

A measurement is an instrument, a value, and label values in the order of the instrument's labels.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from proxyless.base.frozen import frozen


class Kind(Enum):
    """Kind of an instrument. A gauge is read by a callback."""

    COUNTER = "counter"
    # May be counted down as well: values may be negative.
    UP_DOWN_COUNTER = "up-down counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@frozen(eq=False)
class Instrument:
    """One metric. Equal only to itself: create one per name, at module level."""

    name: str
    kind: Kind
    # In OpenTelemetry's notation: "s", "By", "{attempt}".
    unit: str
    description: str
    labels: tuple[str, ...]
    # Recorded only if the user of a plugin enables them.
    optional_labels: tuple[str, ...] = ()
    # Whether a plugin collects it by default.
    is_default: bool = False
    # Bucket boundaries of a histogram. Empty: the plugin's own.
    boundaries: tuple[float, ...] = ()
    # Replaced by another instrument: collected only if it is enabled by its full name.
    is_replaced: bool = False


# Idempotent.
Cancel = Callable[[], None]

# Called with a gauge, its current value, and its label values.
Report = Callable[[Instrument, int, Sequence[str]], None]
# Called with the values of a measurement of several instruments, in their order.
RecordValues = Callable[[tuple[float, ...]], None]
# Reports the current values of gauges. Called in any thread, so it must be thread-safe.
Observe = Callable[[Report], None]


class StatsPlugin(Protocol):
    """Collects measurements. Called on the loops of channels and by any thread that starts an RPC.

    No method may block. An exception is logged and does not affect the RPC.
    """

    def is_interested_in(self, target: str) -> bool:
        """Whether to collect for a channel of this canonical target. Called once per channel."""
        ...

    def label_target(self, target: str) -> str:
        """The label value for a channel's target, in measurements of its RPCs."""
        ...

    def label_method(self, path: str, *, is_registered: bool) -> str:
        """The label value for a method. A path that is not registered may be any text."""
        ...

    def count(
        self,
        instrument: Instrument,
        value: int,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Add to a counter. Negative values are for up-down counters only."""
        ...

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Add a value to a histogram."""
        ...

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        """Call `observe` whenever the values of these gauges are collected."""
        ...


class BindingPlugin(Protocol):
    """The part of a stats plugin that looks up attribute sets once; a plugin may have none."""

    def bind(
        self,
        instruments: Sequence[Instrument],
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> RecordValues:
        """The function that counts or records with these labels. The instruments have the same."""
        ...

    # None if the context of an RPC does not matter. Else a function that is called for every RPC,
    # by the thread and in the context that starts it; if it returns a true value, so is
    # `in_current_context`. It must not raise.
    current_context: Callable[[], object] | None

    def in_current_context(self) -> "StatsPlugin":
        """The plugin for one RPC."""
        ...
