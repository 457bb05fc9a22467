"""Unit tests of proxyless.xds.lb.override_host.choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from proxyless.base import State
from proxyless.xds.lb.override_host.choice import Verdict, choose_host
from proxyless.xds.resources import HealthStatus
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY

USABLE: Final = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})


@dataclass(frozen=True, eq=False)
class View:
    """A host as `choose_host` reads it."""

    state: State | None
    health: HealthStatus = HealthStatus.UNKNOWN


VIEWS: Final = (
    View(READY),
    View(IDLE),
    View(CONNECTING),
    View(FAILURE),
    View(None),
    View(READY, HealthStatus.DRAINING),
    None,
)


def cookies() -> Iterator[tuple[View | None, ...]]:
    for length in range(5):
        yield from product(VIEWS, repeat=length)


def rank(view: View) -> int | None:
    """The rank of a host for a session, 0 being the best; None if it is unusable."""
    if view.health not in USABLE:
        return None
    return {READY: 0, IDLE: 1, CONNECTING: 2, None: 3}.get(view.state)


def test_best_host_is_chosen_and_the_first_among_equals() -> None:
    verdicts = [Verdict.USE, Verdict.CONNECT, Verdict.WAIT, Verdict.CREATE]
    for cookie in cookies():
        hosts = {str(index): view for index, view in enumerate(cookie) if view is not None}
        ranked = [(rank(view), view) for view in hosts.values()]
        usable = [(own, view) for own, view in ranked if own is not None]
        verdict, host = choose_host(map(str, range(len(cookie))), hosts, USABLE)
        if not usable:
            assert (verdict, host) == (Verdict.DELEGATE, None)
            continue
        best = min(own for own, _ in usable)
        assert verdict is verdicts[best]
        first = next(view for own, view in usable if own == best)
        assert host is (None if verdict is Verdict.WAIT else first)
