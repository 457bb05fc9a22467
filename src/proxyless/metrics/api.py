"""What is a measurement, and what does whoever collects them have to do?

Specs: A79 (instruments with required and optional labels, stats plugins, callback gauges).

An instrument says what is measured. Who measures gives a value and the values of the labels, in the
order in which the instrument names them; what becomes of that is the plugin's business.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from proxyless.base.frozen import frozen


class Kind(Enum):
    """What a series of values means."""

    # Only grows.
    COUNTER = "counter"
    # How often which value came.
    HISTOGRAM = "histogram"
    # What it is when somebody looks.
    GAUGE = "gauge"


@frozen(eq=False)
class Instrument:
    """One thing that is measured. Equal only to itself: make one per name, at module level."""

    name: str
    kind: Kind
    # As OpenTelemetry writes it: "s", "By", "{attempt}".
    unit: str
    description: str
    # Names of what every measurement is told apart by.
    labels: tuple[str, ...]
    # And of what it is told apart by only if the user of a plugin asks for it.
    optional_labels: tuple[str, ...] = ()
    # Whether a plugin collects it unless it is told not to.
    is_default: bool = False
    # Of a histogram: the upper bounds that fit its values. Empty: whatever the plugin has.
    boundaries: tuple[float, ...] = ()


# Ends what it was given for. Idempotent.
Cancel = Callable[[], None]

# Takes what a gauge is now: the instrument, the value, the values of its labels.
Report = Callable[[Instrument, int, Sequence[str]], None]
# Reports what some gauges are now. Called in any thread, so it reads only what is safe to read.
Observe = Callable[[Report], None]


class StatsPlugin(Protocol):
    """Collects measurements. Called on the loops of channels and by any thread that starts an RPC.

    No method may block. What one raises is logged, and harms no RPC.
    """

    def is_interested_in(self, target: str) -> bool:
        """Whether it collects for a channel of this canonical target. Asked once per channel."""
        ...

    def label_target(self, target: str) -> str:
        """What a channel's target is called in measurements of its RPCs."""
        ...

    def label_method(self, path: str, *, is_registered: bool) -> str:
        """What a method is called. One that no generated code registered may be anything."""
        ...

    def count(
        self,
        instrument: Instrument,
        value: int,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Add to a counter."""
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
        """Ask this for the values of these gauges, whenever they are wanted."""
        ...
