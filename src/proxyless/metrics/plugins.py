"""Which plugins collect the measurements of a channel?

Specs: A79 ("Global Stats Plugin Registry", "Scoping Stats Plugins for Channels").

Those that were registered for all channels, and those that the channel was given. They are chosen
once, when the channel is made: whoever is registered later hears of later channels only.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from proxyless.metrics.api import Cancel, Instrument, Observe, StatsPlugin

LOGGER: Final = logging.getLogger("proxyless.metrics")

T = TypeVar("T")


class Metrics:
    """The plugins of one channel. Driven by whatever has something to measure."""

    __slots__ = ("active", "plugins", "target")

    def __init__(self, target: str, plugins: Sequence[StatsPlugin]) -> None:
        # Fixed at construction. The target is the canonical one, as labels name it.
        self.target: Final = target
        self.plugins: Final = tuple(plugins)
        # Derived; an attribute, because policies ask for it with each update.
        self.active: Final = bool(self.plugins)

    def count(
        self,
        instrument: Instrument,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
        *,
        value: int = 1,
    ) -> None:
        """Add to a counter."""
        for plugin in self.plugins:
            tell(plugin.count, instrument, value, labels, optional_labels)

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Add a value to a histogram."""
        for plugin in self.plugins:
            tell(plugin.record, instrument, value, labels, optional_labels)

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        """Let every plugin ask for the values of these gauges, until this is cancelled."""
        cancels = [ask(_do_nothing, plugin.watch, gauges, observe) for plugin in self.plugins]

        def cancel() -> None:
            for each in cancels:
                each()

        return cancel


NO_METRICS: Final = Metrics("", ())


def tell(method: Callable[..., None], *measurement: object) -> None:
    """Tell a plugin. It may be an application's own, and is called from inside connections."""
    try:
        method(*measurement)
    except Exception:
        LOGGER.exception("stats plugin: %r raised", method)


def ask(otherwise: T, method: Callable[..., T], *question: object, **more: object) -> T:
    """Ask a plugin; if it raises, the answer is the first argument."""
    try:
        return method(*question, **more)
    except Exception:
        LOGGER.exception("stats plugin: %r raised", method)
        return otherwise


def _do_nothing() -> None:
    return


# In the order in which they were registered, each with the mark of who did it. Changed and read in
# any thread, so in single steps of a dict only.
_global_plugins: dict[StatsPlugin, object] = {}


def register_global(plugin: StatsPlugin) -> None:
    """Collect for every channel that this process makes from now on."""
    mark = object()
    if _global_plugins.setdefault(plugin, mark) is not mark:
        raise RuntimeError(f"stats plugin {plugin!r} is registered already")


def deregister_global(plugin: StatsPlugin) -> None:
    """Collect for no channel that is made from now on; those that are there keep the plugin."""
    if _global_plugins.pop(plugin, None) is None:
        raise RuntimeError(f"stats plugin {plugin!r} is not registered")


def choose_plugins(target: str, own: Iterable[StatsPlugin] = ()) -> Metrics:
    """The plugins of a channel: the registered ones and its own, if they want this target."""
    # Each once: who is registered and given to the channel, too, would count twice.
    plugins = dict.fromkeys((*tuple(_global_plugins), *own))
    wanted = [each for each in plugins if ask(False, each.is_interested_in, target)]
    return Metrics(target, wanted) if wanted else NO_METRICS
