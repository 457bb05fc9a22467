"""Unit tests of tools.simulation.options."""

import pytest

from proxyless.sim.random_choices import derived_random
from tools.simulation.options import Options

WORKLOADS = ("config churn", "backend faults", "name churn")


def test_seed_always_chooses_the_same_options() -> None:
    assert Options.of_seed(3, WORKLOADS) == Options.of_seed(3, WORKLOADS)
    assert Options.of_seed(3, WORKLOADS) != Options.of_seed(4, WORKLOADS)


def test_every_feature_is_chosen_by_some_seeds_and_not_by_others() -> None:
    drawn = [Options.of_seed(seed, WORKLOADS) for seed in range(100)]
    for name in (
        "has_dns",
        "drop_share",
        "max_requests",
        "has_outlier_detection",
        "has_injected_faults",
        "has_long_outage",
        "reply_bytes",
    ):
        chosen = sum(bool(getattr(options, name)) for options in drawn)
        assert 5 < chosen < 60, name


def test_features_do_not_change_the_rest() -> None:
    plain = Options.chosen_by(derived_random(3, "options"), WORKLOADS)
    whole = Options.of_seed(3, WORKLOADS)
    assert (plain.clients, plain.workloads) == (whole.clients, whole.workloads)


@pytest.mark.parametrize("seed", range(20))
def test_described_options_are_parsed_to_equal_ones(seed: int) -> None:
    options = Options.of_seed(seed, WORKLOADS)
    assert Options.parse(options.describe()) == options


def test_description_has_only_options_that_are_not_the_default() -> None:
    assert Options().describe() == ""
    assert Options(has_dns=True, is_paced=False).describe() == "is_paced=no,has_dns=yes"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("size=3", "there is no option 'size'"),
        ("clients=many", "option 'clients' is 'many', wanted int"),
        ("has_dns=1", "option 'has_dns' is '1', wanted yes or no"),
    ],
)
def test_invalid_options_raise(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Options.parse(text)
