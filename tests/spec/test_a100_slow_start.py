"""A100: slow start of weighted_round_robin, in virtual time."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxyless.lb.policies.weighted_round_robin import WeightedRoundRobinConfig
from proxyless.lb.policies.weighted_round_robin.slow_start import SlowStartConfig
from proxyless.metrics.instruments import WRR_SLOW_START
from tests.worlds.endpoint_weights import NO_BLACKOUT, WeightedWorld
from tests.worlds.stats_plugins import TARGET, RecordingPlugin

PICKS = 3000
MINUTE: dict[str, object] = {**NO_BLACKOUT, "slowStartConfig": {"slowStartWindow": "60s"}}


@pytest.fixture
def world() -> WeightedWorld:
    return WeightedWorld()


def start_warm(world: WeightedWorld, config: Mapping[str, object]) -> None:
    """Start with a and b, and wait until their windows are over."""
    world.start("a", "b", config=config)
    world.advance(70)


def add_cold(world: WeightedWorld, config: Mapping[str, object]) -> None:
    """Add c, a backend that has just started."""
    world.update("a", "b", "c", config=config)
    world["c"].connecting()
    world["c"].ready()


def share(world: WeightedWorld, name: str) -> float:
    return world.shares(PICKS).get(name, 0) / PICKS


@pytest.mark.spec("A100-01")
def test_config_of_the_policy_has_slow_start_only_if_it_is_configured(world: WeightedWorld) -> None:
    config = world.parse(MINUTE)
    assert isinstance(config, WeightedRoundRobinConfig)
    assert config.slow_start == SlowStartConfig(60.0)
    plain = world.parse(NO_BLACKOUT)
    assert isinstance(plain, WeightedRoundRobinConfig)
    assert plain.slow_start is None


@pytest.mark.spec("A100-02", "A100-03")
def test_a_cold_backend_gets_its_share_gradually_over_the_minute(world: WeightedWorld) -> None:
    start_warm(world, MINUTE)
    add_cold(world, MINUTE)
    shares = []
    for _ in range(7):
        # The others have 1 each, and the cold one its scale of the mean.
        shares.append(share(world, "c"))
        world.advance(10)
    scales = [0.1, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1]
    assert shares == pytest.approx([each / (2 + each) for each in scales], abs=0.01)


@pytest.mark.spec("A100-02")
def test_a_cold_backend_gets_its_whole_share_at_once_without_slow_start(
    world: WeightedWorld,
) -> None:
    start_warm(world, NO_BLACKOUT)
    add_cold(world, NO_BLACKOUT)
    assert share(world, "c") == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.spec("A100-03")
def test_the_reported_weight_is_scaled_after_the_blackout(world: WeightedWorld) -> None:
    config = {**MINUTE, "blackoutPeriod": "10s", "weightExpirationPeriod": "600s"}
    world.start("a", "b", config=config)
    world.weigh(a=10, b=10)
    world.advance(70)
    add_cold(world, config)
    world.weigh(c=20)
    world.advance(5)
    # In the blackout: 0.1 of the mean.
    assert share(world, "c") == pytest.approx(1 / 21, abs=0.01)
    world.advance(25)
    # Half of the reported weight.
    assert share(world, "c") == pytest.approx(10 / 30, abs=0.01)
    world.advance(30)
    assert share(world, "c") == pytest.approx(20 / 40, abs=0.01)


@pytest.mark.spec("A100-04")
def test_slow_start_begins_again_with_a_new_connection(world: WeightedWorld) -> None:
    start_warm(world, MINUTE)
    assert share(world, "b") == pytest.approx(1 / 2, abs=0.01)
    world["b"].idle()
    world.settle()
    world["b"].connecting()
    world["b"].ready()
    assert share(world, "b") == pytest.approx(0.1 / 1.1, abs=0.01)
    world.advance(60)
    assert share(world, "b") == pytest.approx(1 / 2, abs=0.01)


@pytest.mark.spec("A100-04")
def test_new_reports_after_the_expiration_do_not_start_it_again(world: WeightedWorld) -> None:
    config = {**MINUTE, "weightExpirationPeriod": "5s"}
    start_warm(world, config)
    world.weigh(a=1, b=1)
    world.advance(10)
    world.weigh(a=1, b=1)
    world.advance(1)
    assert share(world, "b") == pytest.approx(1 / 2, abs=0.01)


@pytest.mark.spec("A100-06")
def test_endpoints_in_slow_start_are_counted_at_each_update() -> None:
    plugin, world = RecordingPlugin(), WeightedWorld()
    world.helper.context = replace(world.context, metrics=plugin.metrics)
    start_warm(world, MINUTE)
    before = plugin.count_of(WRR_SLOW_START)
    assert before > 0
    world.advance(10)
    assert plugin.count_of(WRR_SLOW_START) == before
    add_cold(world, MINUTE)
    world.advance(9.5)
    # The new picker, and nine updates.
    assert plugin.counts(WRR_SLOW_START) == {(TARGET, "", ""): before + 10}
