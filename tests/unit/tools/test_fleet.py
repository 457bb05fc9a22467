"""Unit tests of tools.fleet: figures of docs/scale.md per client, and no herd of clients."""

import pytest

from tools.fleet import Phase, most_in_a_second, run

CLIENTS = 100


@pytest.mark.parametrize(
    ("times", "most"),
    [([], 0), ([1.0], 1), ([1.0, 1.5, 1.9, 2.0], 3), ([0.0, 5.0, 5.1, 5.2, 9.0], 3)],
)
def test_most_in_a_second_counts_the_densest_window(times: list[float], most: int) -> None:
    assert most_in_a_second(times) == most


@pytest.fixture(scope="module")
def phases() -> list[Phase]:
    return run(CLIENTS, 10, (1.0, 600.0), has_name=True)


def test_start_takes_one_connection_and_four_responses_per_client(phases: list[Phase]) -> None:
    start = phases[0]
    assert (start.connections, start.attempts, start.lookups) == (CLIENTS, CLIENTS, CLIENTS)
    assert (start.requests, start.responses) == (8 * CLIENTS, 4 * CLIENTS)
    assert start.bytes_in < 1_200 * CLIENTS


def test_change_takes_one_response_and_one_answer_per_client(phases: list[Phase]) -> None:
    change = phases[1]
    assert (change.connections, change.requests, change.responses) == (0, CLIENTS, CLIENTS)


def test_reconnects_are_spread_over_time_after_an_outage(phases: list[Phase]) -> None:
    _, _, short, long = phases
    assert (short.connections, long.connections) == (CLIENTS, CLIENTS)
    # Of a short outage most come back in the first two seconds; of a long one they are spread.
    assert short.accepted_in_1_s < 0.8 * CLIENTS
    assert long.accepted_in_1_s < 0.2 * CLIENTS
    # All are back within the longest delay.
    assert long.seconds < 600.0 + 32.0


def test_lookups_are_bounded_in_an_outage(phases: list[Phase]) -> None:
    long = phases[3]
    assert long.lookups <= CLIENTS * 600 / 30 + CLIENTS * 2
    assert long.attempts <= CLIENTS * 60
