"""Stats plugins of a channel, and the global plugin registry.

Specs: A79 ("Global Stats Plugin Registry", "Scoping Stats Plugins for Channels").

A channel uses the plugins that are registered globally when it is created, and its own.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from proxyless.metrics.api import Cancel, Instrument, Observe, StatsPlugin

LOGGER: Final = logging.getLogger("proxyless.metrics")

T = TypeVar("T")


class Metrics:
    """The plugins of one channel."""

    __slots__ = ("active", "is_traced", "plugins", "target")

    def __init__(self, target: str, plugins: Sequence[StatsPlugin]) -> None:
        # The canonical target, which is also the label value.
        self.target: Final = target
        self.plugins: Final = tuple(plugins)
        # Derived; an attribute, because policies read it with each update.
        self.active: Final = bool(self.plugins)
        # Whether a plugin traces calls (`tracers.TracingPlugin`).
        self.is_traced: Final = any(getattr(each, "is_tracing", False) for each in self.plugins)

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
            record_safely(plugin.count, instrument, value, labels, optional_labels)

    def record(
        self,
        instrument: Instrument,
        value: float,
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> None:
        """Add a value to a histogram."""
        for plugin in self.plugins:
            record_safely(plugin.record, instrument, value, labels, optional_labels)

    def watch(self, gauges: Sequence[Instrument], observe: Observe) -> Cancel:
        """Make every plugin collect these gauges until this is cancelled."""
        cancels = [
            call_plugin(_do_nothing, plugin.watch, gauges, observe) for plugin in self.plugins
        ]

        def cancel() -> None:
            for each in cancels:
                each()

        return cancel


NO_METRICS: Final = Metrics("", ())


def record_safely(method: Callable[..., None], *measurement: object) -> None:
    """Call a plugin, which may be an application's. An exception is logged."""
    try:
        method(*measurement)
    except Exception:
        LOGGER.exception("stats plugin: %r raised", method)


def call_plugin(default: T, method: Callable[..., T], *args: object, **kwargs: object) -> T:
    """The result of a plugin's method; the default if it raises."""
    try:
        return method(*args, **kwargs)
    except Exception:
        LOGGER.exception("stats plugin: %r raised", method)
        return default


def _do_nothing() -> None:
    return


# In the order of registration, each with a token of the `register_global` call. Changed and read in
# any thread, so only with atomic operations of a dict.
_global_plugins: dict[StatsPlugin, object] = {}


def register_global(plugin: StatsPlugin) -> None:
    """Collect for every channel that is created from now on."""
    token = object()
    if _global_plugins.setdefault(plugin, token) is not token:
        raise RuntimeError(f"stats plugin {plugin!r} is registered already")


def deregister_global(plugin: StatsPlugin) -> None:
    """Collect for no channel that is created from now on; existing ones keep the plugin."""
    if _global_plugins.pop(plugin, None) is None:
        raise RuntimeError(f"stats plugin {plugin!r} is not registered")


def choose_plugins(target: str, own: Iterable[StatsPlugin] = ()) -> Metrics:
    """The global plugins and the channel's own that are interested in this target."""
    return choose_own_plugins(target, (*tuple(_global_plugins), *own))


def choose_own_plugins(target: str, own: Iterable[StatsPlugin]) -> Metrics:
    """The channel's own plugins that are interested in this target."""
    # De-duplicate: a plugin may be registered globally and also passed to the channel.
    plugins = dict.fromkeys(own)
    chosen = [each for each in plugins if call_plugin(False, each.is_interested_in, target)]
    return Metrics(target, chosen) if chosen else NO_METRICS
