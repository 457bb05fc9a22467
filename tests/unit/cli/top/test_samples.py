"""Unit tests of proxyless.cli.top.samples."""

from __future__ import annotations

import json
from dataclasses import replace

from proxyless.cli.top.samples import EVENTS_MAX, Traffic, to_json, with_rates
from tests.unit.cli.top.process_samples import make_sample


def test_rates_are_differences_per_second() -> None:
    found = with_rates(make_sample(100, 10.0), make_sample(150, 12.0, failed=4))
    channel, idle = found.channels
    assert (channel.traffic.rate, channel.traffic.failure_rate) == (25.0, 2.0)
    assert channel.clusters[0].traffic.rate == 25.0
    assert [each.traffic.rate for each in channel.clusters[0].endpoints] == [25.0, 0.0, 0.0]
    assert idle.traffic.rate == 0.0
    assert found.traffic == Traffic(150, 4, 2, 25.0, 2.0)


def test_rates_are_unknown_for_the_first_sample_and_for_another_process() -> None:
    sample = make_sample()
    assert with_rates(None, sample) is sample
    assert with_rates(replace(make_sample(50, 9.0), process="pid 6"), sample) is sample
    assert with_rates(make_sample(50, 10.0), sample) is sample, "the same moment"


def test_rate_of_a_count_that_fell_or_is_new_is_unknown() -> None:
    before = make_sample(100, 10.0)
    fallen = with_rates(before, make_sample(50, 11.0))
    assert fallen.channels[0].traffic.rate is None
    (channel, _) = before.channels
    without = replace(before, channels=(replace(channel, clusters=()),))
    found = with_rates(without, make_sample(200, 11.0))
    assert found.channels[0].traffic.rate == 100.0
    assert found.channels[0].clusters[0].traffic.rate is None
    assert found.channels[1].traffic.rate is None


def test_events_of_both_samples_are_kept_up_to_a_limit() -> None:
    sample = None
    for number in range(EVENTS_MAX + 5):
        sample = with_rates(sample, make_sample(number, float(number)))
    assert sample is not None
    assert len(sample.events) == EVENTS_MAX
    assert sample.events[-1].time_s == EVENTS_MAX + 4


def test_json_has_all_levels_and_null_for_unknown_values() -> None:
    document = json.loads(json.dumps(to_json(make_sample())))
    channel = document["channels"][0]
    assert (channel["target"], channel["config_generation"], channel["rate"]) == (
        "xds:///api",
        3,
        None,
    )
    web = channel["clusters"][0]
    assert (web["endpoints_ready"], web["endpoints_total"]) == (1, 3)
    assert [each["is_ejected"] for each in web["endpoints"]] == [False, False, True]
