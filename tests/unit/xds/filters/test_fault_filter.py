"""Fault injection: random choices, headers, limit of active faults."""

from typing import Final

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Metadata, Status, StatusCode
from proxyless.runtime import seeded_random
from proxyless.xds.filters.fault import (
    FaultAbort,
    FaultConfig,
    FaultDelay,
    FaultFilterFactory,
    Percentage,
)
from proxyless.xds.filters.fault_filter import (
    ABORT_HEADER,
    ABORT_HTTP_HEADER,
    DELAY_HEADER,
    DELAY_PERCENTAGE_HEADERS,
    PROCESS_FAULTS,
    ActiveFaults,
    FaultFilter,
)
from proxyless.xds.filters.rpc_filter import RoutedRpc, RpcFilter

ALWAYS: Final = Percentage(100, 100)
RPCS: Final = 2000
INTERNAL: Final = FaultAbort(StatusCode.INTERNAL, ALWAYS)


class Faults:
    """A fault filter with its own counter of active faults."""

    def __init__(self, config: FaultConfig) -> None:
        self.active = ActiveFaults()
        self._filter = FaultFilter(config, seeded_random(1), self.active)

    def choose(self, *metadata: tuple[str, str]) -> RpcFilter | None:
        rpc = RoutedRpc("/a/b", metadata, ("c",), "c", EMPTY_ATTRIBUTES)
        found = self._filter.on_rpc(rpc)
        assert rpc.cluster == "c"
        assert rpc.attributes is EMPTY_ATTRIBUTES
        return found

    def delay_s(self, *metadata: tuple[str, str]) -> float:
        found = self.choose(*metadata)
        return 0.0 if found is None else found.delay_s

    def abort(self, *metadata: tuple[str, str]) -> Status | None:
        found = self.choose(*metadata)
        return None if found is None else found.abort

    def share(self, *metadata: tuple[str, str]) -> float:
        """The share of RPCs with a fault."""
        return sum(self.choose(*metadata) is not None for _ in range(RPCS)) / RPCS


def delayed(delay_s: float | None = 2.0, percentage: Percentage = ALWAYS) -> FaultConfig:
    return FaultConfig(delay=FaultDelay(delay_s, percentage))


def aborted(code: StatusCode | None, percentage: Percentage = ALWAYS) -> FaultConfig:
    return FaultConfig(abort=FaultAbort(code, percentage))


def test_fault_has_delay_and_code_of_the_config() -> None:
    found = Faults(FaultConfig(FaultDelay(2.0, ALWAYS), INTERNAL)).choose()
    assert found is not None
    assert found.delay_s == 2.0
    assert found.abort == Status(StatusCode.INTERNAL, "Fault injected")


def test_abort_with_ok_has_status_ok() -> None:
    assert Faults(aborted(StatusCode.OK)).abort() == OK


@pytest.mark.spec("A33-07")
@pytest.mark.parametrize(
    ("percentage", "share"),
    [
        (Percentage(0, 100), 0),
        (Percentage(30, 100), 0.3),
        (Percentage(3000, 10_000), 0.3),
        (Percentage(300_000, 1_000_000), 0.3),
        (Percentage(100, 100), 1),
    ],
)
def test_share_of_faults_is_the_percentage(percentage: Percentage, share: float) -> None:
    for config in (delayed(percentage=percentage), aborted(StatusCode.INTERNAL, percentage)):
        found = Faults(config).share()
        assert found == pytest.approx(share, abs=0.04)
        assert share not in {0, 1} or found == share


@pytest.mark.spec("A33-08")
def test_delay_and_abort_are_independent() -> None:
    half = Percentage(50, 100)
    faults = Faults(FaultConfig(FaultDelay(1.0, half), FaultAbort(StatusCode.INTERNAL, half)))
    assert faults.share() == pytest.approx(0.75, abs=0.04)


@pytest.mark.spec("A33-09", "A33-12", "A33-14")
@pytest.mark.parametrize(
    ("value", "delay_s"), [("53", 0.053), ("0", 0), ("-5", 0), ("1.5", 0), ("x", 0), ("9" * 30, 0)]
)
def test_header_sets_the_delay_when_the_config_has_none(value: str, delay_s: float) -> None:
    assert Faults(delayed(None)).delay_s((DELAY_HEADER, value)) == delay_s
    assert Faults(delayed(None)).delay_s() == 0
    assert Faults(delayed(2.0)).delay_s((DELAY_HEADER, value)) == 2.0


@pytest.mark.spec("A33-10", "A33-11", "A33-12", "A33-14", reason="one table over the two headers")
@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (((ABORT_HEADER, "3"),), StatusCode.INVALID_ARGUMENT),
        (((ABORT_HTTP_HEADER, "503"),), StatusCode.UNAVAILABLE),
        (((ABORT_HTTP_HEADER, "404"),), StatusCode.UNIMPLEMENTED),
        (((ABORT_HEADER, "3"), (ABORT_HTTP_HEADER, "503")), StatusCode.INVALID_ARGUMENT),
        # "the invalid headers will be ignored" - A33
        (((ABORT_HEADER, "99"),), None),
        (((ABORT_HEADER, "x"),), None),
        (((ABORT_HTTP_HEADER, "42"),), None),
        ((), None),
    ],
)
def test_header_sets_the_code_when_the_config_has_none(
    metadata: Metadata, code: StatusCode | None
) -> None:
    pairs = [(key, str(value)) for key, value in metadata]
    found = Faults(aborted(None)).abort(*pairs)
    assert (None if found is None else found.code) == code
    fixed = Faults(aborted(StatusCode.INTERNAL)).abort(*pairs)
    assert fixed is not None
    assert fixed.code is StatusCode.INTERNAL


@pytest.mark.spec("A33-13")
@pytest.mark.parametrize(("value", "share"), [("0", 0), ("20", 0.2), ("90", 0.5), ("x", 0.5)])
def test_header_can_only_lower_the_percentage(value: str, share: float) -> None:
    half = Percentage(50, 100)
    delay = Faults(delayed(None, half))
    pairs = [(header, value) for header in DELAY_PERCENTAGE_HEADERS]
    assert delay.share((DELAY_HEADER, "5"), *pairs) == pytest.approx(share, abs=0.04)
    for header in ("x-envoy-fault-abort-request-percentage", "x-envoy-fault-abort-percentage"):
        abort = Faults(aborted(None, half))
        found = abort.share((ABORT_HEADER, "3"), (header, value))
        assert found == pytest.approx(share, abs=0.04)
    # Headers are ignored if the config has its own values.
    assert Faults(delayed(2.0)).share(*pairs) == 1


@pytest.mark.spec("A33-15")
def test_number_of_active_faults_is_limited() -> None:
    config = FaultConfig(FaultDelay(1.0, ALWAYS), INTERNAL, max_active_faults=2)
    faults = Faults(config)
    first, second = faults.choose(), faults.choose()
    assert first is not None
    assert second is not None
    first.on_delay_start()
    assert faults.choose() is not None
    second.on_delay_start()
    assert faults.active.count == 2
    assert faults.choose() is None
    for _ in range(2):
        first.on_delay_end()
        assert faults.active.count == 1
    assert faults.choose() is not None


def test_abort_is_never_active() -> None:
    faults = Faults(FaultConfig(abort=INTERNAL, max_active_faults=1))
    found = faults.choose()
    assert found is not None
    # Another filter delays the RPC.
    found.on_delay_start()
    assert faults.active.count == 0


@pytest.mark.spec("A33-17")
def test_no_fault_is_injected_when_the_limit_is_zero() -> None:
    faults = Faults(FaultConfig(FaultDelay(1.0, ALWAYS), INTERNAL, max_active_faults=0))
    assert faults.choose() is None


@pytest.mark.spec("A33-18")
def test_override_replaces_the_config() -> None:
    factory, random = FaultFilterFactory(), seeded_random(1)
    assert factory.create(FaultConfig(), None, random) is None
    assert factory.create(aborted(StatusCode.INTERNAL), FaultConfig(), random) is None
    made = factory.create(delayed(), aborted(StatusCode.ABORTED), random)
    assert made is not None
    found = made.on_rpc(RoutedRpc("/a/b", (), (), "c", EMPTY_ATTRIBUTES))
    assert found is not None
    assert (found.delay_s, found.abort) == (0, Status(StatusCode.ABORTED, "Fault injected"))
    assert PROCESS_FAULTS.count == 0
