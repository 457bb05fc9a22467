"""Unit tests of proxyless.metrics.calls."""

from collections.abc import Sequence

import pytest

from proxyless.metrics import CallRecorder, Instrument, Metrics
from proxyless.metrics.api import RecordValues
from proxyless.metrics.calls import BOUND_MAX
from proxyless.metrics.instruments import (
    ATTEMPT_DURATION,
    ATTEMPT_RECEIVED,
    ATTEMPT_SENT,
    ATTEMPT_STARTED,
    BACKEND_SERVICE,
    CALL_DURATION,
    CALL_HEDGES,
    CALL_RETRIES,
    CALL_RETRY_DELAY,
    CALL_TRANSPARENT_RETRIES,
    INSTRUMENTS,
    LOCALITY,
)
from tests.worlds.stats_plugins import TARGET, RecordingPlugin

PATH = "/pkg.Service/Method"
NAME = "pkg.Service/Method"


def test_each_plugin_has_its_own_label_for_a_method() -> None:
    named, unnamed = RecordingPlugin(), RecordingPlugin(named=False)
    recorder = CallRecorder(Metrics(TARGET, [named, unnamed]), PATH, is_registered=False)
    recorder.on_attempt_start()
    recorder.on_call_end("OK", 1.5)
    assert named.counts(ATTEMPT_STARTED) == {(NAME, TARGET, ""): 1}
    assert unnamed.counts(ATTEMPT_STARTED) == {("other", TARGET, ""): 1}
    assert unnamed.values(CALL_DURATION) == [(("other", TARGET, "OK", ""), 1.5)]


def test_a_registered_method_is_recorded_by_name() -> None:
    plugin = RecordingPlugin(named=False)
    CallRecorder(plugin.metrics, PATH, is_registered=True).on_attempt_start()
    assert plugin.counts(ATTEMPT_STARTED) == {(NAME, TARGET, ""): 1}


def test_the_end_of_an_attempt_is_three_values_with_the_labels_of_its_pick() -> None:
    plugin = RecordingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    recorder.on_attempt_end("OK", 0.25, 10, 20, {LOCALITY: "zone", BACKEND_SERVICE: "cluster"})
    labels = (NAME, TARGET, "OK", "zone", "cluster", "")
    assert plugin.values(ATTEMPT_DURATION) == [(labels, 0.25)]
    assert plugin.values(ATTEMPT_SENT) == [(labels, 10)]
    assert plugin.values(ATTEMPT_RECEIVED) == [(labels, 20)]


@pytest.mark.spec("A78-16", "A89-05")
def test_labels_that_no_policy_set_are_empty() -> None:
    plugin = RecordingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    recorder.on_attempt_end("UNAVAILABLE", 0, 0, 0, {})
    assert plugin.values(ATTEMPT_SENT) == [((NAME, TARGET, "UNAVAILABLE", "", "", ""), 0)]


class NoLabels(RecordingPlugin):
    """Raises in `label_method` and `label_target`."""

    def label_method(self, path: str, *, is_registered: bool) -> str:
        raise RuntimeError("no name")

    def label_target(self, target: str) -> str:
        raise RuntimeError("no name")


def test_labels_are_other_when_a_plugin_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = NoLabels()
    CallRecorder(plugin.metrics, PATH, is_registered=True).on_attempt_start()
    assert plugin.counts(ATTEMPT_STARTED) == {("other", "other", ""): 1}
    assert "stats plugin" in caplog.text


@pytest.mark.spec("A108-01", "A108-02")
def test_every_instrument_of_a_call_has_the_custom_label() -> None:
    plugin = RecordingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    for each in (recorder.labelled("checkout"), recorder):
        each.on_attempt_start()
        each.on_attempt_end("OK", 0.25, 10, 20, {})
        each.on_call_end("OK", 1.5)
        each.on_retried_call_end(retries=1, transparent_retries=2, hedges=3, delay_s=0.5)
        each.on_call_delay("resolving", 0.5)
        each.on_attempt_delay("connecting", 0.5)
    of_calls = [each for each in INSTRUMENTS if each.name.startswith("grpc.client.")]
    for instrument in of_calls:
        labels = [labels for labels, _ in plugin.values(instrument)]
        assert [each[-1] for each in labels or plugin.counts(instrument)] == ["checkout", ""]


def test_retries_that_did_not_happen_are_not_recorded() -> None:
    plugin = RecordingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    recorder.on_retried_call_end(retries=2, transparent_retries=0, hedges=0, delay_s=0.5)
    labels = (NAME, TARGET, "")
    assert plugin.values(CALL_RETRIES) == [(labels, 2)]
    assert plugin.values(CALL_RETRY_DELAY) == [(labels, 0.5)]
    recorder.on_retried_call_end(retries=0, transparent_retries=1, hedges=3, delay_s=0.0)
    assert plugin.values(CALL_TRANSPARENT_RETRIES) == [(labels, 1)]
    assert plugin.values(CALL_HEDGES) == [(labels, 3)]
    assert len(plugin.values(CALL_RETRIES)) == len(plugin.values(CALL_RETRY_DELAY)) == 1


class BindingPlugin(RecordingPlugin):
    """Binds labels, and records the values of each bound function."""

    current_context = None

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.bound: list[tuple[str, ...]] = []
        self.values_of: list[tuple[float, ...]] = []
        self._error = error

    def bind(
        self,
        instruments: Sequence[Instrument],
        labels: Sequence[str],
        optional_labels: Sequence[str] = (),
    ) -> RecordValues:
        for instrument in instruments:
            self._check(instrument, labels, optional_labels)
        self.bound.append((*labels, *optional_labels))
        return self._record

    def _record(self, values: tuple[float, ...]) -> None:
        if self._error is not None:
            raise self._error
        self.values_of.append(values)


def run_rpc(recorder: CallRecorder, status: str = "OK") -> None:
    recorder.on_attempt_start()
    recorder.on_attempt_end(status, 0.25, 10, 20, {LOCALITY: "zone"})
    recorder.on_call_end(status, 0.5)


def test_labels_are_bound_once() -> None:
    plugin = BindingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    run_rpc(recorder)
    run_rpc(recorder.labelled("x"))
    for _ in range(3):
        run_rpc(recorder)
    assert len(plugin.bound) == len(set(plugin.bound)) == 6
    assert plugin.values_of[:3] == [(1,), (0.25, 10, 20), (0.5,)]
    assert len(plugin.values_of) == 15


def test_cache_of_bound_functions_is_cleared_when_it_is_large() -> None:
    plugin = BindingPlugin()
    recorder = CallRecorder(plugin.metrics, PATH, is_registered=True)
    for number in range(BOUND_MAX + 1):
        recorder.on_call_end(str(number), 0.5)
    recorder.on_call_end(str(BOUND_MAX), 0.5)
    assert len(plugin.bound) == BOUND_MAX + 1
    recorder.on_call_end("0", 0.5)
    assert len(plugin.bound) == BOUND_MAX + 2


def test_bound_function_that_raises_does_not_affect_the_rpc_or_other_plugins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, other = BindingPlugin(RuntimeError("no")), RecordingPlugin()
    run_rpc(CallRecorder(broken.metrics, PATH, is_registered=True))
    assert caplog.text.count("RuntimeError: no") == 3
    plugins = [BindingPlugin(RuntimeError("no")), other]
    run_rpc(CallRecorder(Metrics(TARGET, plugins), PATH, is_registered=True))
    assert other.count_of(ATTEMPT_STARTED) == len(other.values(CALL_DURATION)) == 1


def test_plugin_that_cannot_bind_records_each_value(caplog: pytest.LogCaptureFixture) -> None:
    class Unbound(BindingPlugin):
        """Raises in `bind`."""

        def bind(self, *_: object) -> RecordValues:
            raise RuntimeError("no")

    plugin = Unbound()
    run_rpc(CallRecorder(plugin.metrics, PATH, is_registered=True))
    assert [value for _, value in plugin.values(ATTEMPT_SENT)] == [10]
    assert "raised" in caplog.text
