"""Unit tests of bench/delta.py, with few clusters."""

from bench.delta import LEDS, measure


async def test_incremental_xds_sends_only_what_changed() -> None:
    clusters = 40
    whole = await measure("proxyless", clusters, 2)
    delta = await measure("proxyless, delta", clusters, 2)
    assert whole.keys() == delta.keys()
    for step in ("one cluster changed", "new ADS stream"):
        sent, sent_in_part = whole[step][0], delta[step][0]
        assert sent_in_part < sent / 3, step
    assert all(cpu_ms > 0 for _, cpu_ms in delta.values())


async def test_one_member_of_a_collection_costs_less_than_its_endpoints() -> None:
    whole = await measure("proxyless, delta", 0, 2, 100)
    members = await measure(LEDS, 0, 2, 100)
    assert whole.keys() == members.keys()
    assert members["one endpoint changed"][0] < whole["one endpoint changed"][0] / 3
