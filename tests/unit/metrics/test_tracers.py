"""Unit tests of proxyless.metrics.tracers."""

from typing import Any

import pytest

from proxyless.metrics import Metrics
from proxyless.metrics.tracers import choose_tracings, start_tracers
from tests.worlds.stats_plugins import RecordingPlugin

PATH = "/pkg.Service/Method"


class StubTracing(RecordingPlugin):
    """Plugin that traces, and starts one tracer for all calls."""

    is_tracing = True

    def __init__(self, tracer: Any = None, error: Exception | None = None) -> None:  # noqa: ANN401
        super().__init__()
        self.paths: list[str] = []
        self._tracer = tracer
        self._error = error

    def trace_method(self, path: str) -> Any:  # noqa: ANN401 - itself
        if self._error is not None:
            raise self._error
        self.paths.append(path)
        return self

    def start_call(self) -> Any:  # noqa: ANN401
        return self._tracer


def test_metrics_are_traced_if_a_plugin_traces() -> None:
    assert not Metrics("", [RecordingPlugin()]).is_traced
    assert Metrics("", [RecordingPlugin(), StubTracing()]).is_traced


def test_only_plugins_that_trace_start_tracers() -> None:
    first, second = StubTracing("first"), StubTracing((("key", "value"),))
    tracings = choose_tracings([first, RecordingPlugin(), second], PATH)
    assert (first.paths, second.paths) == ([PATH], [PATH])
    started: Any = start_tracers(tracings)
    assert started == (("first",), (("key", "value"),))


def test_plugin_that_raises_at_the_start_of_a_call_does_not_trace_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(StubTracing):
        """Raises for each call."""

        def start_call(self) -> Any:  # noqa: ANN401
            raise RuntimeError("no")

    assert start_tracers(choose_tracings([Broken()], PATH)) == ((), ())
    assert "raised" in caplog.text


def test_a_plugin_that_raises_does_not_trace(caplog: pytest.LogCaptureFixture) -> None:
    broken, other = StubTracing(error=RuntimeError("no")), StubTracing("other")
    started: Any = start_tracers(choose_tracings([broken, other], PATH))
    assert started == (("other",), ())
    assert "raised" in caplog.text
